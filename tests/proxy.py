"""A TCP proxy whose connections go silent without an end, break or are slow: what a bad network looks like."""

import ctypes
import socket
import struct
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit, urlunsplit

SO_ATTACH_FILTER = 26
DROP_EVERYTHING = struct.pack("HBBI", 0x06, 0, 0, 0)  # BPF: return 0 bytes of each packet

# seconds after which what stands between two peers drops a connection that one of them has left
FORGETS = 20.0


@dataclass(eq=False)
class Link:
    """One connection through the proxy: both of its sockets."""

    near: socket.socket
    far: socket.socket
    silent: bool = False
    last_words: bytes = b""
    delay: float = 0.0  # seconds before each piece of an answer
    answers: int = 0  # pieces of answers that came

    def start(self) -> None:
        for source, target in ((self.near, self.far), (self.far, self.near)):
            threading.Thread(target=self._pump, args=(source, target), daemon=True).start()

    def drop(self) -> None:
        """From now on the kernel throws away what either peer sends: nobody acknowledges."""
        for each in (self.near, self.far):
            code = ctypes.create_string_buffer(DROP_EVERYTHING)
            each.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HP", 1, ctypes.addressof(code)))

    def close(self) -> None:
        for each in (self.near, self.far):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if not self.silent:
                    self.silent = bool(self.last_words) and source is self.near and self.last_words in data
                    if source is self.far:
                        self.answers += 1
                        time.sleep(self.delay)
                    target.sendall(data)
        if not self.silent:  # a silent link tells nobody for long that the other end has gone
            self.close()
        elif source is self.near:
            forgotten = threading.Timer(FORGETS, self.close)
            forgotten.daemon = True
            forgotten.start()


@dataclass(eq=False)
class Proxy:
    """Stands before the server of an address; `url` is the address through it."""

    address: str
    delay: float = 0.0  # seconds before each piece of an answer
    links: list[Link] = field(default_factory=list)
    stopped: bool = False
    last_words: bytes = b""  # a connection that has sent these to the server hears nothing more

    def __post_init__(self) -> None:
        self._door = socket.create_server(("127.0.0.1", 0), backlog=128)
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        parts = urlsplit(self.address)
        account = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
        return urlunsplit(parts._replace(netloc=f"{account}127.0.0.1:{self._door.getsockname()[1]}"))

    def silence(self, *, dropping: bool = False) -> int:
        """No byte passes the open connections any more, new ones work. How many there were.

        They acknowledge what they are sent, unless `dropping`.
        """
        open_ones = [link for link in self.links if not link.silent and link.near.fileno() != -1]
        for link in open_ones:
            link.silent = True
            if dropping:
                link.drop()
        return len(open_ones)

    def cut(self) -> int:
        """Close the open connections; how many there were."""
        open_ones = [link for link in self.links if not link.silent and link.near.fileno() != -1]
        for link in open_ones:
            link.close()
        return len(open_ones)

    def lose_the_answer_to(self, words: bytes) -> None:
        """What says this to the server is heard, and never learns it. Nothing: all is well again."""
        self.last_words = words
        for link in self.links:
            link.last_words = words

    def stop(self) -> None:
        """The server is stopped: open and new connections alike are taken and never answered."""
        self.stopped = True
        self.silence()

    def go_on(self) -> None:
        """New connections work again."""
        self.stopped = False

    def end(self) -> None:
        self._door.close()
        for link in self.links:
            link.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._door.accept()
                threading.Thread(target=self._connect, args=(near,), daemon=True).start()

    def _connect(self, near: socket.socket) -> None:
        parts = urlsplit(self.address)
        try:
            far = socket.create_connection((parts.hostname or "127.0.0.1", parts.port or 5432))
        except OSError:
            near.close()
            return
        link = Link(near=near, far=far, silent=self.stopped, last_words=self.last_words, delay=self.delay)
        self.links.append(link)
        link.start()
