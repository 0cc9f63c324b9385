"""Who may ask: pages of this server, and programs that name it by an address of its own.

A web page elsewhere can make a browser send requests here, and by a name that it lets point to
127.0.0.1 (DNS rebinding) it could read the answers. Such requests name a foreign `Host` or
`Origin`, and are refused.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable
from email.message import Message
from urllib.parse import urlsplit

from leanbayes.errors import ConfigError
from leanbayes.serving.refusal import Refusal

Allowed = Callable[[str], bool]


def is_loopback(host: str) -> bool:
    """True for names and addresses that only this machine can reach.

    Example:
        >>> is_loopback("localhost"), is_loopback("127.0.0.2"), is_loopback("0.0.0.0")
        (True, True, False)
    """
    if host.lower() in ("localhost", "localhost."):
        return True
    found = _address(host)
    return found is not None and found.is_loopback


def allowed_hosts(host: str) -> Allowed:
    """Which names a request may use for a server at `host`.

    A server for other machines is known by its addresses, which nobody else can point anywhere,
    and by the name of the machine.
    """
    if is_loopback(host):
        return is_loopback
    own = {host.lower(), socket.gethostname().lower(), socket.getfqdn().lower()}

    def known(name: str) -> bool:
        return is_loopback(name) or _address(name) is not None or name.lower() in own

    return known


def check_host(headers: Message, allowed: Allowed) -> None:
    """Refuse a request that names another server, or comes from a page of one."""
    names = headers.get_all("Host") or []
    if len(names) != 1:
        raise Refusal(400, f"{len(names)} Host headers", "one", close=True)
    if not allowed(_name(f"//{names[0]}")):
        raise _foreign("Host", names[0])
    origin = headers.get("Origin")
    if origin is not None and origin.partition("://")[2].lower() != names[0].strip().lower():
        raise _foreign("Origin", origin)


def bind_address(host: str, remote: bool) -> str:
    """The address to listen on.

    Args:
        host: As it was written.
        remote: Others may ask too.

    Raises:
        ConfigError: The host is not a loopback one, and `remote` was not asked for.
    """
    if is_loopback(host) or remote:
        return host
    raise ConfigError(
        f"--host {host} lets other machines ask the model, without a password: write "
        "--allow-remote where that is meant, else leave --host out"
    )


def _name(target: str) -> str:
    try:
        return urlsplit(target).hostname or ""
    except ValueError:
        return ""


def _foreign(header: str, value: str) -> Refusal:
    words = "the address that the server printed"
    return Refusal(403, f"a request for {header} {value[:80]!r}", words, close=True)


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None
