"""Settings: what a file gives, what the options override, and the line each mistake ends in."""

from __future__ import annotations

import copy
import errno
import pickle
import re
from pathlib import Path

import pytest

from flintmq import config
from flintmq.config import Bans, Config, Limits, Listen, Log, PermissionSettings, Storage, Tls, UserSettings
from flintmq.config.files import unreadable
from flintmq.config.tables import Section, types_of
from flintmq.errors import ConfigFault

ROOT = Path(__file__).resolve().parent.parent.parent


def fault(text: str) -> str:
    with pytest.raises(ConfigFault) as caught:
        config.parse(text, "flintmq.toml")
    said = str(caught.value)
    assert "\n" not in said
    assert said.startswith("flintmq.toml: ")
    return said.removeprefix("flintmq.toml: ")


def test_an_empty_file_is_the_defaults() -> None:
    assert config.parse("") == Config()
    assert config.load() == Config()


def test_the_defaults_are_safe_to_start_with() -> None:
    settings = Config()
    assert settings.listen == Listen(hosts=("127.0.0.1", "::1"), port=5672)
    assert settings.limits.channels_per_connection_max == 2047
    assert settings.limits.frame_bytes_max == 131_072
    assert settings.storage.directory is None
    assert settings.storage.sync == "always"
    assert settings.tls is None
    assert settings.virtual_hosts == ("/",)
    assert settings.users["guest"].tags == ("administrator",)


def test_every_section_is_read(tmp_path: Path) -> None:
    for name in ("cert.pem", "key.pem", "ca.pem"):
        (tmp_path / name).write_text("pem")
    settings = config.parse(
        f"""
        virtual_hosts = ["/", "orders"]
        [listen]
        hosts = ["0.0.0.0"]
        port = 0
        [limits]
        connections_max = 10
        message_bytes_max = "16MiB"
        handshake_timeout_s = 2
        memory_high_bytes = "2 GB"
        [storage]
        directory = "/var/lib/flintmq"
        sync = "interval"
        [log]
        level = "debug"
        [tls]
        certificate = "{tmp_path}/cert.pem"
        key = "{tmp_path}/key.pem"
        authority = "{tmp_path}/ca.pem"
        port = 5999
        [users.alice]
        password = "secret"
        tags = ["monitoring"]
        loopback_only = true
        [users.alice.permissions.orders]
        read = "^orders"
        """
    )
    assert settings.listen == Listen(hosts=("0.0.0.0",), port=0)
    assert settings.limits == Limits(
        connections_max=10,
        message_bytes_max=16 * 2**20,
        handshake_timeout_s=2.0,
        memory_high_bytes=2 * 10**9,
    )
    assert settings.storage == Storage(directory=Path("/var/lib/flintmq"), sync="interval")
    assert settings.log == Log(level="debug")
    assert settings.tls == Tls(
        certificate=tmp_path / "cert.pem", key=tmp_path / "key.pem", authority=tmp_path / "ca.pem", port=5999
    )
    assert settings.virtual_hosts == ("/", "orders")
    assert dict(settings.users) == {
        "alice": UserSettings(
            password="secret",
            tags=("monitoring",),
            loopback_only=True,
            permissions={"orders": PermissionSettings(read="^orders")},
        )
    }


def test_guest_may_use_every_virtual_host_named() -> None:
    settings = config.parse('virtual_hosts = ["a", "b"]')
    assert list(settings.users["guest"].permissions) == ["a", "b"]


def test_users_in_the_file_replace_guest() -> None:
    assert list(config.parse('[users.alice]\npassword = "x"').users) == ["alice"]
    assert dict(config.parse("[users]").users) == {}


def test_options_override_the_file(tmp_path: Path) -> None:
    file = tmp_path / "flintmq.toml"
    file.write_text('[listen]\nhosts = ["10.0.0.1"]\nport = 1\n[log]\nlevel = "error"\n')
    assert config.load(file).listen == Listen(hosts=("10.0.0.1",), port=1)
    settings = config.load(file, hosts=["::", "0.0.0.0"], port=0, directory="/d", log_level="debug")
    assert settings.listen == Listen(hosts=("::", "0.0.0.0"), port=0)
    assert settings.storage.directory == Path("/d")
    assert settings.log.level == "debug"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"port": 70000}, "--port = 70000: expected a whole number from 0 to 65535"),
        ({"hosts": [""]}, '--host[0] = "": expected text of 1 to 255 octets'),
        ({"directory": ""}, '--data = "": expected a path'),
        (
            {"log_level": "loud"},
            '--log-level = "loud": expected one of "debug", "info", "warning", "error"',
        ),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigFault, match=f"^{re.escape(said)}$"):
        config.load(None, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("limts = 1", "unknown setting 'limts', did you mean 'limits'?"),
        ("port = 5672", "unknown setting 'port'; it belongs to the section [listen]"),
        ("memory_high_share = 1", "unknown setting 'memory_high_share'; it belongs to the section [limits]"),
        ("[listen]\nprot = 1", "unknown setting 'prot' in [listen], did you mean 'port'?"),
        (
            "[log]\nzzz = 1",
            "unknown setting 'zzz' in [log]; known here: level, file, format, rotate_bytes, rotate_count, "
            "turn_span_ms",
        ),
        ("listen = 5", "listen = 5: expected a table, written as [listen]"),
        ("users = true", "users = true: expected a table, written as [users]"),
        ('[listen]\nport = "5672"', 'listen.port = "5672": expected a whole number from 0 to 65535'),
        ("[listen]\nport = true", "listen.port = true: expected a whole number from 0 to 65535"),
        ("[listen]\nport = -1", "listen.port = -1: expected a whole number from 0 to 65535"),
        ("[listen]\nport = 1.5", "listen.port = 1.5: expected a whole number from 0 to 65535"),
        ("[listen]\nhosts = []", "listen.hosts = []: expected a list of texts with at least one in it"),
        (
            '[listen]\nhosts = "::1"',
            'listen.hosts = "::1": expected a list of texts with at least one in it',
        ),
        ("[listen]\nhosts = [1]", "listen.hosts[0] = 1: expected text of 1 to 255 octets"),
        (
            '[listen]\nhosts = ["a", "a"]',
            'listen.hosts[1] = "a": expected each value once, this one is there twice',
        ),
        (
            "[limits]\nhandshake_timeout_s = nan",
            "limits.handshake_timeout_s = nan: expected a number from 0.1 to 3600",
        ),
        (
            '[limits]\nmemory_high_share = "half"',
            'limits.memory_high_share = "half": expected a number from 0.01 to 1',
        ),
        (
            '[limits]\nframe_bytes_max = "1 furlong"',
            'limits.frame_bytes_max = "1 furlong": expected a size from 4096 to 134217728 bytes, '
            'such as 65536 or "512MiB"',
        ),
        (
            "[limits]\nframe_bytes_max = 4095",
            "limits.frame_bytes_max = 4095: expected a size from 4096 to 134217728 bytes, "
            'such as 65536 or "512MiB"',
        ),
        (
            '[storage]\nsync = "often"',
            'storage.sync = "often": expected one of "always", "interval", "never"',
        ),
        ("[storage]\ndirectory = 5", "storage.directory = 5: expected a path"),
        (
            f'[tls]\ncertificate = "{__file__}"\nkey = "{__file__}"\nverify = "optional"',
            'tls.verify = "optional": tls.authority is missing; give a PEM file with the roots of clients',
        ),
        ("[tls]\nport = 1", "tls.certificate is missing; give the path of a PEM file"),
        (
            '[tls]\ncertificate = "/no/such"\nkey = "/no/such"',
            'tls.certificate = "/no/such": cannot be read: No such file or directory; check the path',
        ),
        ("[users.a]", "users.a: give either password or password_hash, and only one of them"),
        (
            '[users.a]\npassword = "x"\npassword_hash = "y"',
            "users.a: give either password or password_hash, and only one of them",
        ),
        ("[users.a]\npassword = 5", "users.a.password: expected text of 1 to 1024 octets (not shown here)"),
        ('[users.""]\npassword = "x"', 'users: a name = "": expected text of 1 to 255 octets'),
        (
            '[users.a]\npassword = "x"\nloopback_only = 1',
            "users.a.loopback_only = 1: expected true or false",
        ),
        (
            '[users.a]\npassword = "x"\ntags = ["root"]',
            'users.a.tags[0] = "root": expected one of "administrator", "monitoring", "management", '
            '"policymaker", "impersonator"',
        ),
        (
            '[users.a]\npassword = "x"\npermissions."/x".read = ""',
            "users.a.permissions.\"/x\": no such virtual host, did you mean '/'?",
        ),
        (
            '[users.a]\npassword = "x"\npermissions.orders.read = ""',
            'users.a.permissions."orders": no such virtual host; add it to virtual_hosts',
        ),
        (
            '[users.a]\npassword = "x"\npermissions = { configure = ".*", write = ".*" }',
            "users.a.permissions.configure stands for no virtual host; each has a table of its own: "
            'permissions."/" = { configure = ".*", write = ".*", read = ".*" }',
        ),
        (
            '[users.a]\npassword = "x"\npermissions."/".read = 5',
            'users.a.permissions."/".read = 5: expected a regular expression',
        ),
        (
            '[users.a]\npassword = "x"\npermissions."/".reed = ""',
            "unknown setting 'reed' in [users.a.permissions.\"/\"], did you mean 'read'?",
        ),
    ],
)
def test_a_mistake_ends_in_one_clear_line(text: str, said: str) -> None:
    assert fault(text) == said


def test_a_broken_pattern_says_where_it_breaks() -> None:
    said = fault('[users.a]\npassword = "x"\npermissions."/".read = "("')
    assert said.startswith('users.a.permissions."/".read = "(": expected a regular expression (position 1: ')


def test_broken_toml_says_the_line() -> None:
    said = fault("a = 1\nb = = 2")
    assert said.startswith("not valid TOML: ")
    assert "line 2" in said


def test_toml_of_endless_depth_is_a_mistake_like_others() -> None:
    assert fault("a = " + "[" * 100_000).startswith("not valid TOML: ")


def test_a_secret_is_never_repeated() -> None:
    assert "hunter2" not in fault(f'[users.a]\npassword = "{"hunter2" * 200}"')
    assert "hunter2" not in repr(config.parse('[users.a]\npassword = "hunter2"'))


def test_a_long_value_is_cut_and_stays_on_one_line() -> None:
    said = fault(f'[log]\nlevel = "{"x" * 500}"')
    assert len(said) < 150
    assert fault('"a\\nb" = 1') == "unknown setting 'a\\nb'; known here: " + ", ".join(Config._fields)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    missing = tmp_path / "none.toml"
    with pytest.raises(ConfigFault) as caught:
        config.load(missing)
    assert str(caught.value) == (
        f"{missing}: cannot be read: No such file or directory; check the path given to --config"
    )
    with pytest.raises(ConfigFault, match="cannot be read: Is a directory; check the path"):
        config.load(tmp_path)
    refused = PermissionError(errno.EACCES, "Permission denied")
    assert unreadable(refused, "the path") == (
        "cannot be read: Permission denied; let the user that the broker runs as read it"
    )
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"a = \xff")
    with pytest.raises(ConfigFault, match=r"not UTF-8 text at octet 4; save it as UTF-8$"):
        config.load(binary)
    with binary.open("wb") as stream:
        stream.truncate(config.CONFIG_FILE_BYTES_MAX + 1)
    with pytest.raises(ConfigFault, match=r"larger than 16777216 bytes; is it a configuration\?$"):
        config.load(binary)


def test_the_memory_mark_is_absolute_or_a_share() -> None:
    assert Limits(memory_high_share=0.5).memory_bytes_high(1000) == 500
    assert Limits(memory_high_bytes=700).memory_bytes_high(1000) == 700


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Config().listen.port = 1  # type: ignore[misc]
    with pytest.raises(TypeError):
        Config().users["mallory"] = UserSettings()  # type: ignore[index]


def test_a_section_is_a_tuple_of_its_settings_by_name() -> None:
    listen = Listen(("::1",), port=1)
    assert listen == (("::1",), 1, (), None)
    assert (listen.hosts, listen.port) == (("::1",), 1)
    assert listen._replace(port=2) == Listen(("::1",), 2)
    assert copy.copy(listen) == copy.deepcopy(listen) == pickle.loads(pickle.dumps(listen)) == listen
    assert repr(listen) == "Listen(hosts=('::1',), port=1, proxy_protocol_from=(), fast09_port=None)"
    for wrong in ({"ports": 1}, {"port": 1, "ports": 1}):
        with pytest.raises(TypeError, match="Listen has no ports"):
            listen._replace(**wrong)
    with pytest.raises(ValueError, match="longer"):
        Listen((), 1, (), None, 5)  # type: ignore[call-arg]


def test_every_check_of_every_section_can_be_made() -> None:
    """They are made when the first value is checked, and so may be wrong unseen."""
    sections = Section.__subclasses__()
    assert Limits in sections
    for each in sections:
        assert types_of(each).keys() >= set(each._fields)


def test_the_page_tells_every_setting_and_its_default() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text()
    for section in (Listen, Limits, Storage, Log, Tls, Bans, UserSettings, PermissionSettings):
        for name, default in section._field_defaults.items():
            assert f"`{name}`" in page, f"{section.__name__}.{name}"
            if type(default) is int:
                row = next(line for line in page.splitlines() if line.startswith(f"| `{name}`"))
                assert re.search(rf"\b{default}\b", page if name == "port" else row), row


def test_the_example_of_the_page_loads() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text()
    examples = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    assert examples
    for example in examples:
        config.parse(example)
