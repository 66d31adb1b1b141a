"""Tells the receivers of `notify` what happens in a sweep, from threads of its own that read the log.

Nothing here can delay a trial: each receiver has a queue of limited length, each attempt a time limit, and what cannot
be sent is written to the debug log and given up. Secrets come from the environment and are never written anywhere.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import queue
import smtplib
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import make_msgid
from functools import partial
from typing import Any, TypeAlias

from sweep.analysis import Outline, conditions
from sweep.analysis.notices import Notice, NoticeWatch
from sweep.errors import Problem, StoreError, refuse
from sweep.events import Event, convert_to_json_types
from sweep.spec import Spec
from sweep.spec.blocks import Notify
from sweep.store import log
from sweep.store.folder import ResultsFolder
from sweep.store.follower import Follower
from sweep.text import printable, shortened

Send: TypeAlias = Callable[[Notice], None]

PERIOD_S = 2.0  # seconds between reads of the log
TIMEOUT_S = 10.0  # seconds that an attempt to send a notice may take
STEP_TIMEOUT_S = 8.0  # seconds that a server may take for each step of it before the notice is sent
PAUSES_S = (1.0, 5.0)  # seconds before the second and the third attempt
MOST_WAITING = 100  # notices in the queue of a receiver; more are dropped
CLOSING_S = 30.0  # seconds to send what is still in the queues when the sweep has ended
_SMTP_OVER_TLS = 465


def check_variables(spec: Spec, environment: Mapping[str, str] = os.environ) -> None:
    """Raise `InputError` with all environment variables that `notify` names and that are unset or empty, if any."""
    problems = []
    for index, receiver in enumerate(spec.notify):
        for key, variable in receiver.variables.items():
            if not environment.get(variable):
                what = f"the environment variable {variable} is not set"
                problems.append(Problem(f"notify.{index}.{key}", what, f"export {variable}=..."))
    refuse(problems)


def tell_withheld_end(spec: Spec, folder: ResultsFolder) -> None:
    """Send the notice that the search has ended, if it was kept back for a confirmation that has not begun.

    Waits until it is sent or given up, for at most `CLOSING_S` seconds. If there is no such notice, do nothing. Raises
    StoreError if the log is damaged.
    """
    watch = NoticeWatch(Outline.of(spec), is_confirmed_next=True)
    for event in log.read(folder.log):
        watch.skip(event)  # makes no notice, but keeps the end of the search in ``withheld``
    if watch.withheld is None:
        return
    receivers = [Receiver(receiver) for receiver in spec.notify]
    for receiver in receivers:
        receiver.put(watch.withheld)
    _close_receivers(receivers)


class Notifier(Follower):
    """Follower of a log that sends notices: one thread reads the log, and another for each receiver sends."""

    def __init__(
        self, spec: Spec, folder: ResultsFolder, *, is_confirmed_next: bool = False
    ) -> None:
        self._folder = folder
        # makes the notices from the events
        self._watch = NoticeWatch(Outline.of(spec), is_confirmed_next=is_confirmed_next)
        self._offset = 0  # bytes of the log that were read
        # what the log has already is of earlier sessions
        self._skip_bytes = folder.log.stat().st_size if folder.log.exists() else 0
        self._receivers = [Receiver(receiver) for receiver in spec.notify]
        self._asks_for_verdict = any("verdict" in receiver.kinds for receiver in spec.notify)
        # last, because it starts the thread that calls `update`
        super().__init__("notices", PERIOD_S)

    def update(self) -> None:
        """Read the new events of the log, and queue the notices that follow from them for the receivers.

        Events that the log had before this session make no notices. Do nothing if there is no log yet. Raises
        StoreError if the log cannot be read; its new events are then read again the next time.
        """
        if not self._folder.log.exists():
            return
        new: list[Event] = []
        read = self._offset
        for event, end in log.read_with_ends(self._folder.log, self._offset):
            read = end
            if end <= self._skip_bytes:  # an earlier session has sent the notices of this event
                self._watch.skip(event)
                self._offset = end
            else:
                new.append(event)
        self._offset = read  # only now: if reading fails, nobody has observed the new ones
        # whether there is a verdict is looked up only if a receiver asks for it
        has_verdict = self._has_verdict if self._asks_for_verdict else None
        for notice in self._watch.observe(new, has_verdict):
            for receiver in self._receivers:
                receiver.put(notice)

    def _has_verdict(self) -> bool | None:
        """Return whether the present ranking of the sweep, read from its folder, has a verdict.

        If it cannot be read, log that and return None, so that the other notices are sent.
        """
        try:
            ranking = conditions.read_ranking(self._folder)
        except StoreError as error:
            _log(f"whether there is a verdict is not known: {error}")
            return None
        return conditions.has_verdict(ranking)

    def drop(self) -> None:
        """Do nothing: a notifier does not start over, since notices would then be sent twice."""

    def close(self) -> None:
        """Make the last notices and wait until all are sent or given up, for at most `CLOSING_S` seconds.

        Errors are only written to the debug log.
        """
        try:
            super().close()
        except Exception:  # without its last notices, the sweep has still ended well
            logging.getLogger(__name__).exception("the last notices could not be made")
        _close_receivers(self._receivers)


class Receiver:
    """Sends notices to one receiver, in order, from a queue in a thread of its own, which starts at once."""

    def __init__(self, asked: Notify) -> None:
        self._kinds = asked.kinds
        self._send = make_sender(asked)
        self._name = describe_receiver(asked)
        self._queue: queue.Queue[Notice | None] = queue.Queue(MOST_WAITING)
        self._thread = threading.Thread(
            target=self._work, name=f"sweep notify {self._name}", daemon=True
        )
        self._thread.start()

    def put(self, notice: Notice) -> None:
        """Queue a notice if the receiver asked for its kind, without waiting.

        If the queue is full, drop the notice and log that.
        """
        if notice.event not in self._kinds:
            return
        try:
            self._queue.put_nowait(notice)
        except queue.Full:
            _log(f"{self._name}: too many notices wait, dropped: {notice.text}")

    def close(self, timeout_s: float) -> None:
        """Wait until the queued notices are sent or given up, for about ``timeout_s`` seconds at most.

        Do not call `put` afterwards: its notices would not be sent.
        """
        deadline = time.monotonic() + timeout_s
        try:
            self._queue.put(None, timeout=timeout_s)  # ends `_work`, after the notices before it
        except queue.Full:  # the thread is a daemon, which does not keep the process from ending
            return
        self._thread.join(max(deadline - time.monotonic(), 0.0))

    def _work(self) -> None:
        """Send the queued notices in order until the queue is closed; runs in the thread.

        There are up to three attempts for each notice, with pauses after failures, but no other attempt after one that
        is still under way. Failures are only logged.
        """
        while (notice := self._queue.get()) is not None:
            for pause_s in (*PAUSES_S, None):  # one attempt for each; None: the last one
                try:
                    self._send(notice)
                    break
                except _DeliveryUnknown as error:
                    _log(f"{self._name}: not sent yet, {_describe_failure(error)}: {notice.text}")
                    break  # another attempt might send it twice
                except Exception as error:  # whatever a server answers: the sweep goes on
                    _log(f"{self._name}: not sent, {_describe_failure(error)}: {notice.text}")
                if pause_s is not None:  # before the next attempt
                    time.sleep(pause_s)


def _close_receivers(receivers: Sequence[Receiver]) -> None:
    """Close all receivers; wait until their notices are sent or given up, for at most `CLOSING_S` seconds in total."""
    deadline = time.monotonic() + CLOSING_S
    for receiver in receivers:
        receiver.close(max(deadline - time.monotonic(), 0.0))


def describe_receiver(asked: Notify) -> str:
    """Return the kind of a receiver: webhook, slack, mail or "command NAME"; not its address, which may be secret."""
    if asked.command is not None:
        return f"command {asked.command[0]}"
    if asked.webhook is not None:
        return "webhook"
    return "slack" if asked.slack is not None else "mail"


def make_sender(asked: Notify, environment: Mapping[str, str] = os.environ) -> Send:
    """Return a function that sends one notice to a receiver and raises an exception if that fails.

    The receiver's secrets are read from ``environment`` now; one that is missing counts as "".
    """
    if asked.command is not None:
        return partial(_run_command, asked.command)
    if asked.webhook is not None:
        headers = {}
        if asked.token is not None:
            headers["Authorization"] = f"Bearer {environment.get(asked.token, '')}"
        return partial(_send_in_time, partial(_post_notice, asked.webhook, headers))
    if asked.slack is not None:
        return partial(_send_in_time, partial(_post_to_slack, environment.get(asked.slack, "")))
    # the only kind that is left
    password = environment.get(asked.password or "", "")
    return partial(_send_in_time, partial(_send_mail, asked, password))


def _log(text: str) -> None:
    """Log a line as a warning, which goes into the sweep's debug log."""
    logging.getLogger(__name__).warning("notify: %s", printable(text))


def _describe_failure(error: Exception) -> str:
    """Return an error's type and code, as ``HTTPError 404``, without its message, which may have a secret address."""
    kind = type(error).__name__
    if isinstance(error, urllib.error.HTTPError):
        return f"{kind} {error.code}"
    if isinstance(error, smtplib.SMTPResponseException):
        return f"{kind} {error.smtp_code}"
    if isinstance(error, subprocess.CalledProcessError):
        return f"{kind}, exit code {error.returncode}"
    return kind


def _encode_notice(notice: Notice) -> bytes:
    """Return all fields of a notice as a JSON object in ASCII bytes."""
    values: dict[str, Any] = {**asdict(notice), "best_trials": list(notice.best_trials)}
    return json.dumps(convert_to_json_types(values)).encode("ascii")


class _DeliveryUnknown(TimeoutError):
    """Raised if an attempt takes too long, or a server does not answer; the notice may still arrive."""


def _send_in_time(send: Send, notice: Notice) -> None:
    """Send a notice in a thread of its own. Raises what ``send`` raises, or _DeliveryUnknown after `TIMEOUT_S` seconds.

    An attempt that takes longer goes on in its thread, and its result is ignored. `STEP_TIMEOUT_S` is less, so that a
    server that cannot be reached makes ``send`` itself raise, and another attempt can follow.
    """
    errors: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()

    def attempt() -> None:
        """Send, and put the error or None into ``errors``; runs in the thread."""
        try:
            send(notice)
        except Exception as error:
            errors.put(error)
        else:
            errors.put(None)

    threading.Thread(target=attempt, name="sweep notify attempt", daemon=True).start()
    try:
        error = errors.get(timeout=TIMEOUT_S)
    except queue.Empty:
        raise _DeliveryUnknown from None
    try:
        if error is not None:
            raise error
    finally:
        # its traceback has this frame: the connection would stay open until garbage is collected
        del error


def _run_command(command: Sequence[str], notice: Notice) -> None:
    """Run a receiver's command with the notice as JSON on standard input; its output is discarded.

    Raises an exception if the command cannot be run, fails, or is killed after `TIMEOUT_S` seconds.
    """
    subprocess.run(
        list(command),
        input=_encode_notice(notice),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=TIMEOUT_S,
        check=True,
    )


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects, which would carry a token to another server."""

    def redirect_request(self, *args: Any, **given: Any) -> None:
        """Return no request, so that a redirect is an error."""
        return None


def _post(url: str, content: bytes, headers: Mapping[str, str]) -> None:
    """Send a POST request with ``content``, which is JSON; ``headers`` are added.

    Raises _DeliveryUnknown if the server gets the request and does not answer in time, and another exception for a
    redirect, a server's error, or a connection that takes too long.
    """
    request = urllib.request.Request(
        encode_url(url), content, {"Content-Type": "application/json", **headers}, method="POST"
    )
    try:
        with urllib.request.build_opener(_NoRedirect).open(
            request, timeout=STEP_TIMEOUT_S
        ) as answer:
            answer.read(1)
    except TimeoutError as error:
        # of the answer; a timeout of what comes before it is the reason of a URLError
        raise _DeliveryUnknown from error


# the reserved characters of RFC 3986, section 2.2, and what begins one that is encoded already
_KEPT_IN_URLS = ":/?#[]@!$&'()*+,;=%"


def encode_url(url: str) -> str:
    """Return a URL in ASCII, as browsers send it: the host's name in Punycode, other characters percent-encoded.

    What is percent-encoded already stays so. Raises UnicodeError if the host's name cannot be encoded.
    """
    parts = urllib.parse.urlsplit(url)
    host, colon, port = parts.netloc.partition(":")
    if not host.isascii():
        parts = parts._replace(netloc=f"{host.encode('idna').decode('ascii')}{colon}{port}")
    return urllib.parse.quote(parts.geturl(), safe=_KEPT_IN_URLS)


def _post_notice(url: str, headers: Mapping[str, str], notice: Notice) -> None:
    """Send a notice as JSON to a URL. Raises an exception if that fails."""
    _post(url, _encode_notice(notice), headers)


def _post_to_slack(url: str, notice: Notice) -> None:
    """Send the text of a notice to Slack's incoming webhook ``url``. Raises an exception if that fails."""
    text = printable(notice.text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    _post(url, json.dumps({"text": text}).encode("ascii"), {})


def _send_mail(asked: Notify, password: str, notice: Notice) -> None:
    """Send a notice as a mail, encrypted if the server can; a password is only sent encrypted.

    A server that encrypts must have a certificate of an authority that this machine trusts. Raises an exception if
    sending fails, but not if only the server's good-bye is not as expected: the mail would be sent again.
    """
    host, _, port = (asked.server or "").rpartition(":")
    message = EmailMessage()
    message["To"] = asked.mail
    message["From"] = asked.sender or asked.mail
    message["Subject"] = shortened(printable(notice.text), 120)
    # not every server adds these, and mails without them are taken for spam
    message["Date"] = datetime.fromtimestamp(notice.time, UTC)
    message["Message-ID"] = make_msgid(domain=host)
    message.set_content(f"{printable(notice.text)}\n\n{_encode_notice(notice).decode('ascii')}\n")
    must_encrypt = asked.user is not None
    with closing(_connect_to_mail_server(host, int(port), must_encrypt=must_encrypt)) as server:
        if asked.user is not None:
            _log_in(server, asked.user, password)
        if server.sock is not None:
            # A mail that the server has got must not count as one that failed because its answer was late.
            server.sock.settimeout(2 * TIMEOUT_S)
        server.send_message(message)
        with suppress(smtplib.SMTPException):
            server.quit()


def _log_in(server: smtplib.SMTP, user: str, password: str) -> None:
    """Log in to a mail server. Raises SMTPException if it refuses.

    A user or password that is not ASCII is sent in UTF-8.
    """
    if f"{user}{password}".isascii():
        server.login(user, password)
        return
    # smtplib sends nothing but ASCII; this is UTF-8, as RFC 4616 says
    server.ehlo_or_helo_if_needed()
    credentials = base64.b64encode(f"\0{user}\0{password}".encode()).decode("ascii")
    code, answer = server.docmd("AUTH", f"PLAIN {credentials}")
    if code != 235:  # the code for a login that has succeeded
        raise smtplib.SMTPAuthenticationError(code, answer)


def _connect_to_mail_server(host: str, port: int, *, must_encrypt: bool) -> smtplib.SMTP:
    """Return a connection to a mail server, encrypted if the server can.

    Raises SMTPNotSupportedError if it must be encrypted and cannot, and another OSError if the server does not answer
    or its certificate is not trusted.
    """
    trusted = ssl.create_default_context()  # without a context, smtplib verifies no certificate
    if port == _SMTP_OVER_TLS:
        return smtplib.SMTP_SSL(host, port, timeout=STEP_TIMEOUT_S, context=trusted)
    server = smtplib.SMTP(host, port, timeout=STEP_TIMEOUT_S)
    try:
        server.ehlo()
        if server.has_extn("starttls"):
            server.starttls(context=trusted)
        elif must_encrypt:
            raise smtplib.SMTPNotSupportedError("no encryption")
    except BaseException:
        server.close()
        raise
    return server
