import socket

from config.supervisor.errors import SetupError


def free_port() -> int:
    """A TCP port on loopback that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def check_port(host: str, port: int) -> None:
    """Raise SetupError if we cannot listen on this address."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen(1)
    except OSError as error:
        reason = error.strerror or str(error)
        raise SetupError(
            f"cannot listen on {host}:{port} ({reason}); choose another with --host or --port"
        ) from None
