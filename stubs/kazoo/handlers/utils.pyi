from typing import Generic, TypeVar

T = TypeVar("T")

class AsyncResult(Generic[T]):
    def get(self, block: bool = True, timeout: float | None = None) -> T: ...
