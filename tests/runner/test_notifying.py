"""Notices reach real servers: a webhook, Slack's form, mail and a command; retried, bounded, without secrets."""

from __future__ import annotations

import base64
import json
import smtplib
import socketserver
import ssl
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import trustme
from click.testing import CliRunner
from walking import FILE, write_project

from sweep.analysis.notices import Notice
from sweep.cli import main
from sweep.errors import InputError, StoreError
from sweep.events import Event
from sweep.runner import notifying
from sweep.runner.notifying import Notifier, Receiver, make_sender
from sweep.spec import parse_spec
from sweep.spec.blocks import Notify
from sweep.store import log as store_log
from sweep.store.folder import ResultsFolder

NOTICE = Notice(
    event="finished",
    sweep="s",
    text="s: a < b & \x1bc",
    time=1.0,
    metric="loss",
    best=float("nan"),
    best_trials=(3,),
    ended_trials=4,
)
SECRET = "hunter2"


class Hook(HTTPServer):
    """A webhook that answers with these codes, one after another, then with 200."""

    def __init__(self, codes: tuple[int, ...] = ()) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.codes = list(codes)
        self.got: list[tuple[dict[str, str], Any]] = []
        self.paths: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook"


class _Handler(BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((dict(self.headers), json.loads(content)))
        self.server.paths.append(self.path)
        self.send_response(self.server.codes.pop(0) if self.server.codes else 200)
        self.send_header("Location", self.server.url)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def serving(server: socketserver.BaseServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifying, "PAUSES_S", (0.01, 0.01))
    monkeypatch.setenv("no_proxy", "*")


def test_a_webhook_gets_json_and_the_token() -> None:
    hook = Hook()
    with serving(hook):
        make_sender(Notify(webhook=hook.url, token="TOKEN"), {"TOKEN": SECRET})(NOTICE)
    ((headers, content),) = hook.got
    assert headers["Authorization"] == f"Bearer {SECRET}"
    assert (content["version"], content["event"], content["best"], content["best_trials"]) == (
        1,
        "finished",
        "nan",
        [3],
    )


def test_the_address_of_a_webhook_may_have_an_at_sign_and_any_letters() -> None:
    hook = Hook()
    with serving(hook):
        for path in ("/1@2/IncomingWebhook", "/größe?of=ü%20b"):  # as Microsoft Teams has it
            text = f"{FILE}notify: [{{webhook: '{hook.url}{path}'}}]\n"
            make_sender(parse_spec(text, "f.yaml").notify[0])(NOTICE)
    assert hook.paths == ["/hook/1@2/IncomingWebhook", "/hook/gr%C3%B6%C3%9Fe?of=%C3%BC%20b"]


@pytest.mark.parametrize(
    ("url", "sent"),
    [
        ("https://bücher.example:8080/x", "https://xn--bcher-kva.example:8080/x"),
        ("http://[::1]:80/?a=b&c=%41#d", "http://[::1]:80/?a=b&c=%41#d"),
        ('http://a.example/"{x}|^\\`', "http://a.example/%22%7Bx%7D%7C%5E%5C%60"),
    ],
)
def test_an_address_in_ascii(url: str, sent: str) -> None:
    assert notifying.encode_url(url) == sent


def test_slack_gets_a_text_that_it_does_not_take_for_markup() -> None:
    hook = Hook()
    with serving(hook):
        make_sender(Notify(slack="HOOK"), {"HOOK": hook.url})(NOTICE)
    assert hook.got[0][1] == {"text": "s: a &lt; b &amp; \\x1bc"}


def test_a_token_is_not_carried_elsewhere_by_a_redirect() -> None:
    hook = Hook((307, 307))
    with serving(hook), pytest.raises(Exception, match="307"):
        make_sender(Notify(webhook=hook.url, token="TOKEN"), {"TOKEN": SECRET})(NOTICE)
    assert len(hook.got) == 1


def test_a_command_reads_the_notice(tmp_path: Path) -> None:
    program = "import sys, pathlib; pathlib.Path(sys.argv[1]).write_text(sys.stdin.read())"
    make_sender(Notify(command=(sys.executable, "-c", program, str(tmp_path / "got.json"))))(NOTICE)
    assert json.loads((tmp_path / "got.json").read_text())["text"] == NOTICE.text


class Mailbox(socketserver.TCPServer):
    """A mail server; with ``certificate``, it offers encryption and expects a login."""

    def __init__(self, certificate: trustme.LeafCert | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Conversation)
        self.mails: list[str] = []
        self.logins: list[tuple[str, str]] = []
        self.goodbye, self.welcome = b"221 bye", b"235 welcome"
        self.pause_s = 0.0  # until it answers to a mail
        self.tls: ssl.SSLContext | None = None
        if certificate is not None:
            self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            certificate.configure_cert(self.tls)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client that does not trust the certificate hangs up."""


class _Conversation(socketserver.StreamRequestHandler):
    """As much of SMTP as one mail takes."""

    server: Mailbox

    def handle(self) -> None:
        connection, is_encrypted = self.request, False
        lines = connection.makefile("rb")
        connection.sendall(b"220 here\r\n")
        while line := lines.readline():
            word = line.split()[0].upper()
            if word == b"STARTTLS" and self.server.tls is not None:
                connection.sendall(b"220 go on\r\n")
                connection = self.server.tls.wrap_socket(connection, server_side=True)
                lines, is_encrypted = connection.makefile("rb"), True
                continue
            if word == b"DATA":
                connection.sendall(b"354 go on\r\n")
                self.server.mails.append(b"".join(iter(lines.readline, b".\r\n")).decode())
                time.sleep(self.server.pause_s)
            if word == b"AUTH":
                assert is_encrypted
                _, user, password = base64.b64decode(line.split()[2]).decode().split("\0")
                self.server.logins.append((user, password))
            connection.sendall(self._answer(word, is_encrypted=is_encrypted))
            if word == b"QUIT":
                break
        connection.close()

    def _answer(self, word: bytes, *, is_encrypted: bool) -> bytes:
        if word == b"QUIT":
            return self.server.goodbye + b"\r\n"
        if word == b"AUTH":
            return self.server.welcome + b"\r\n"
        if word == b"EHLO" and self.server.tls is not None:
            return (
                b"250-here\r\n250 AUTH PLAIN\r\n"
                if is_encrypted
                else b"250-here\r\n250 STARTTLS\r\n"
            )
        return b"250 ok\r\n"


def test_mail_reaches_a_server() -> None:
    server = Mailbox()
    asked = Notify(mail="ann@example.org", server=server.address, sender="sweep@example.org")
    with serving(server):
        make_sender(asked)(NOTICE)
        # a password is not sent in plain text
        with pytest.raises(Exception, match="no encryption"):
            make_sender(asked.model_copy(update={"user": "ann", "password": "P"}), {"P": SECRET})(
                NOTICE
            )
    (mail,) = server.mails
    assert "To: ann@example.org" in mail
    assert "Date: " in mail
    assert "Message-ID: " in mail
    assert "Subject: s: a < b & \\x1bc" in mail


def test_a_mail_that_was_taken_is_sent_even_if_the_server_says_a_strange_goodbye() -> None:
    server = Mailbox()
    server.goodbye = b"421 closing"
    with serving(server):
        make_sender(Notify(mail="ann@example.org", server=server.address))(NOTICE)
    assert len(server.mails) == 1


def test_a_password_may_have_any_letters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = trustme.CA()
    server = Mailbox(authority.issue_cert("127.0.0.1"))
    authority.cert_pem.write_to_path(tmp_path / "trusted.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "trusted.pem"))
    asked = Notify(mail="ann@example.org", server=server.address, user="ann", password="P")
    with serving(server):
        make_sender(asked, {"P": "pässwört"})(NOTICE)
        server.welcome = b"535 no"
        with pytest.raises(smtplib.SMTPAuthenticationError):
            make_sender(asked, {"P": "fälsch"})(NOTICE)
    assert server.logins == [("ann", "pässwört"), ("ann", "fälsch")]
    assert len(server.mails) == 1


@pytest.mark.parametrize("is_trusted", [True, False])
def test_a_password_goes_to_a_server_whose_certificate_is_trusted(
    is_trusted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = trustme.CA()
    server = Mailbox(authority.issue_cert("127.0.0.1"))
    trusted = authority if is_trusted else trustme.CA()
    trusted.cert_pem.write_to_path(tmp_path / "trusted.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "trusted.pem"))
    asked = Notify(mail="ann@example.org", server=server.address, user="ann", password="P")
    with serving(server):
        if is_trusted:
            make_sender(asked, {"P": SECRET})(NOTICE)
        else:
            with pytest.raises(ssl.SSLCertVerificationError):
                make_sender(asked, {"P": SECRET})(NOTICE)
    assert server.logins == ([("ann", SECRET)] if is_trusted else [])
    assert len(server.mails) == is_trusted


def test_it_is_tried_again_and_the_log_has_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    hook = Hook((500, 403))
    with serving(hook):
        receiver = Receiver(Notify(webhook=f"{hook.url}?key={SECRET}"))
        receiver.put(NOTICE)
        receiver.close(10.0)
    assert len(hook.got) == 3
    told = [record.getMessage() for record in caplog.records]
    assert [text.split(":")[2].split(",")[1] for text in told] == [
        " HTTPError 500",
        " HTTPError 403",
    ]
    assert SECRET not in caplog.text


def test_a_receiver_that_hangs_delays_nothing(
    caplog: pytest.LogCaptureFixture, monkeypatch
) -> None:
    monkeypatch.setattr(notifying, "MOST_WAITING", 2)
    let_go = threading.Event()
    monkeypatch.setattr(notifying, "make_sender", lambda asked: lambda notice: let_go.wait(60.0))
    receiver = Receiver(Notify(slack="HOOK"))
    began = time.monotonic()
    for _ in range(9):
        receiver.put(NOTICE)
    receiver.close(0.1)
    assert time.monotonic() - began < 30.0
    assert "too many notices wait, dropped" in caplog.text
    let_go.set()


class _SlowHandler(socketserver.BaseRequestHandler):
    """Answers with a header that has no end, byte by byte, faster than the time limit for each of them."""

    def handle(self) -> None:
        with suppress(OSError):
            self.request.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            for _ in range(100):
                self.request.sendall(b"x")
                time.sleep(0.1)


def test_a_server_that_sends_byte_by_byte_has_the_same_time(monkeypatch) -> None:
    monkeypatch.setattr(notifying, "TIMEOUT_S", 0.5)
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), _SlowHandler)
    server.daemon_threads = True
    with serving(server):
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            make_sender(Notify(webhook=f"http://127.0.0.1:{server.server_address[1]}/"))(NOTICE)
        assert time.monotonic() - began < 5.0


def count_attempts(scheme: str, handler: type[socketserver.BaseRequestHandler]) -> int:
    """How often a notice is sent to a webhook whose server answers by ``handler``."""
    attempts = []

    class Counting(handler):
        def handle(self) -> None:
            attempts.append(self.client_address)
            super().handle()

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Counting)
    server.daemon_threads = True
    with serving(server):
        receiver = Receiver(Notify(webhook=f"{scheme}://127.0.0.1:{server.server_address[1]}/"))
        receiver.put(NOTICE)
        receiver.close(10.0)
    return len(attempts)


def test_what_is_still_under_way_is_not_sent_again(
    caplog: pytest.LogCaptureFixture, monkeypatch
) -> None:
    monkeypatch.setattr(notifying, "TIMEOUT_S", 0.5)
    monkeypatch.setattr(notifying, "PAUSES_S", (0.01, 0.01))
    assert count_attempts("http", _SlowHandler) == 1
    assert "webhook: not sent yet" in caplog.text


class _LateHandler(socketserver.BaseRequestHandler):
    """Answers over HTTP, later than a step may take."""

    def handle(self) -> None:
        with suppress(OSError):
            self.request.recv(65536)
            time.sleep(0.8)
            self.request.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")


@pytest.mark.parametrize(
    ("scheme", "expected"),
    [
        ("http", 1),  # it has the notice
        ("https", 3),  # it does not get as far as that
    ],
)
def test_a_late_answer_is_waited_for_and_a_late_connection_is_tried_again(
    scheme: str, expected: int, monkeypatch
) -> None:
    monkeypatch.setattr(notifying, "STEP_TIMEOUT_S", 0.3)
    monkeypatch.setattr(notifying, "PAUSES_S", (0.01, 0.01))
    assert count_attempts(scheme, _LateHandler) == expected


def test_a_mail_that_is_answered_late_is_not_sent_again(monkeypatch) -> None:
    monkeypatch.setattr(notifying, "STEP_TIMEOUT_S", 0.3)
    monkeypatch.setattr(notifying, "PAUSES_S", (0.01, 0.01))
    server = Mailbox()
    server.pause_s = 0.8
    with serving(server):
        receiver = Receiver(Notify(mail="ann@example.org", server=server.address))
        receiver.put(NOTICE)
        receiver.close(10.0)
    assert len(server.mails) == 1


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ("{}", "none of them, expected one of command, webhook, slack and mail"),
        ("{slack: A, mail: b}", "slack and mail, expected one of"),
        ("{slack: 'https://hooks.slack.com/x'}", "expected the name of an environment variable"),
        ("{webhook: 'https://ann:pw@host/'}", "expected a URL such as"),
        ("{webhook: 'https://host/', user: ann}", "user: means nothing without mail"),
        ("{mail: a@b, server: here}", "expected host:port"),
        ("{mail: a@b}", "has no server"),
        ("{mail: a@b, server: 'h:25', user: ann}", "has no password"),
        ("{command: [true], on: [end]}", "expected one of finished, failed, best"),
    ],
)
def test_mistakes_in_the_file(entry: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        parse_spec(f"{FILE}notify: [{entry}]\n", "f.yaml")


def test_a_variable_that_is_not_set() -> None:
    spec = parse_spec(f"{FILE}notify: [{{slack: NO_SUCH}}]\n", "f.yaml")
    with pytest.raises(
        InputError, match=r"notify.0.slack: the environment variable NO_SUCH is not set"
    ):
        notifying.check_variables(spec, {})
    assert spec.to_json_dict()["notify"] == [{"slack": "NO_SUCH"}]
    assert "notify" not in parse_spec(FILE, "f.yaml").to_json_dict()


def test_a_sweep_tells_what_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hook = Hook()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOKEN", SECRET)
    entry = f"{{webhook: '{hook.url}', token: TOKEN, on: [best, budget, finished]}}"
    write_project(tmp_path, file=f"{FILE}notify: [{entry}]\n", name="told")
    with serving(hook):
        ran = CliRunner().invoke(main, ["run", "told.yaml", "--inline"])
        assert ran.exit_code == 0
        assert {content["event"] for _, content in hook.got} == {"best", "budget", "finished"}
        assert hook.got[-1][1]["ended_trials"] == 2
        hook.got.clear()
        more = [
            "resume",
            "told",
            "--inline",
            "--set",
            f'notify=[{{"webhook": "{hook.url}", "on": ["finished"]}}]',
        ]
        assert CliRunner().invoke(main, more).exit_code == 0
        assert [content["event"] for _, content in hook.got] == ["finished"]
    found = [
        path
        for path in (tmp_path / "results").rglob("*")
        if path.is_file() and SECRET.encode() in path.read_bytes()
    ]
    assert found == []
    assert SECRET not in ran.output


CONFIRMED = "confirm: {seeds: 2, finalists: 2, budget: null}\n"


def run_confirmed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Run a sweep whose search ends at a limit and is confirmed; return its exit code and what was told of its end."""
    hook = Hook()
    monkeypatch.chdir(tmp_path)
    entry = f"{{webhook: '{hook.url}', on: [finished, failed]}}"
    write_project(
        tmp_path, file=f"{FILE}budget: {{epochs: 2}}\n{CONFIRMED}notify: [{entry}]\n", name="told"
    )
    with serving(hook):
        ran = CliRunner().invoke(main, ["run", "told.yaml", "--inline"])
    return [ran.exit_code, *((content["event"], content["text"]) for _, content in hook.got)]


def test_a_sweep_with_a_confirmation_tells_its_end_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, *ends = run_confirmed(tmp_path, monkeypatch)
    assert code == 0
    assert [event for event, _ in ends] == ["finished"]
    log = (tmp_path / "results" / "told" / "log.jsonl").read_text()
    assert log.count('"session_ended"') == 2


def test_the_end_of_a_search_is_told_if_its_confirmation_cannot_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise StoreError("no confirmation today")

    monkeypatch.setattr("sweep.runner.resuming.open_sweep", refuse)
    code, *ends = run_confirmed(tmp_path, monkeypatch)
    assert code != 0
    assert [event for event, _ in ends] == ["finished"]


def test_a_ranking_that_cannot_be_read_keeps_no_other_notice_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise StoreError("no ranking today")

    monkeypatch.setattr("sweep.analysis.conditions.read_ranking", refuse)
    monkeypatch.chdir(tmp_path)
    hook = Hook()
    entry = f"{{webhook: '{hook.url}', on: [verdict, finished]}}"
    write_project(tmp_path, file=f"{FILE}notify: [{entry}]\n", name="told")
    with serving(hook):
        ran = CliRunner().invoke(main, ["run", "told.yaml", "--inline"])
    assert ran.exit_code == 0, ran.output
    assert [content["event"] for _, content in hook.got] == ["finished"]


def test_events_after_which_reading_failed_are_told_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_project(tmp_path, name="told")
    assert CliRunner().invoke(main, ["run", "told.yaml", "--inline"]).exit_code == 0
    folder = ResultsFolder(tmp_path / "results" / "told")
    logged = folder.log.read_bytes()
    folder.log.unlink()  # so that all of its events are new
    hook = Hook()
    text = f"{FILE}notify: [{{webhook: '{hook.url}', on: [finished]}}]\n"
    read_with_ends = store_log.read_with_ends

    def fail_at_the_end(path: Path, offset: int = 0) -> Iterator[tuple[Event, int]]:
        yield from read_with_ends(path, offset)
        raise StoreError("the disk is away")

    with serving(hook):
        notifier = Notifier(parse_spec(text, "f.yaml"), folder)
        folder.log.write_bytes(logged)
        with monkeypatch.context() as patched:
            patched.setattr(store_log, "read_with_ends", fail_at_the_end)
            with pytest.raises(StoreError, match="the disk is away"):
                notifier.update()
        notifier.close()
    assert [content["event"] for _, content in hook.got] == ["finished"]


def test_a_server_that_is_gone_fails_no_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_project(tmp_path, name="told")
    monkeypatch.chdir(tmp_path)
    ran = CliRunner().invoke(
        main, ["run", "told.yaml", "--inline", "--notify", "http://127.0.0.1:1/x"]
    )
    assert ran.exit_code == 0, ran.output
