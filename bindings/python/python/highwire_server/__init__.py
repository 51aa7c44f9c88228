"""A server of HTTP/1, HTTP/2 and TLS for ASGI, WSGI and RSGI applications.

The server's worker is the wait of the asyncio event loop: it parses requests, begins their tasks and sends their
responses in the loop's own thread, without a queue or another thread between.
"""

from ._highwire import ProtocolClosed, ProtocolError
from ._server import Config, Server, run

__all__ = ["Config", "ProtocolClosed", "ProtocolError", "Server", "run"]
