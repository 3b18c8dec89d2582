class ZnodeStat:
    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    version: int
