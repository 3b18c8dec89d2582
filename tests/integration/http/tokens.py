"""Two services."""

from tripstore.http.settings import ServiceRight, ServiceToken

READER, WRITER = "r" * 32, "w" * 32
TOKENS = (ServiceToken("billing", READER, ServiceRight.READ), ServiceToken("trips", WRITER, ServiceRight.WRITE))
