"""A browser without a browser: one tab's conversation with the server, over its WebSocket.

It asks for a page as the browser's program does, takes what comes, presses buttons, and keeps redrawing
the fragments that the server told it to redraw.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from urllib.parse import urlencode, urlsplit

from streamlit.proto.Alert_pb2 import Alert
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.sync.client import ClientConnection, connect

_PATIENCE_S = 60.0
PAGES = {
    "": "Recompute Studio",
    "set-up": "Set up",
    "live": "Live",
    "tradeoff": "Trade-off",
    "decision": "Decision",
    "verify": "Verify",
    "reinvest": "Reinvest",
    "demo": None,
    "studies": "Studies",
    "compare": "Compare",
}
"""Every page's address -> its heading; the demo's says its step."""
_ENDS = (ForwardMsg.FINISHED_SUCCESSFULLY, ForwardMsg.FINISHED_FRAGMENT_RUN_SUCCESSFULLY)


@dataclass
class Visitor:
    """One tab. Not for several threads at once."""

    address: str
    page: str = ""
    asked: dict[str, str] = field(default_factory=dict)
    """Query parameters."""
    latencies_s: list[float] = field(default_factory=list)
    """Of every redraw that was asked for: from the question to the end of the answer."""
    troubles: list[str] = field(default_factory=list)
    """Errors that the page showed, and answers that did not come."""
    fragments: dict[str, float] = field(default_factory=dict)
    """Which fragment redraws itself, and every how many seconds."""
    buttons: dict[str, str] = field(default_factory=dict)
    """Label -> widget."""
    words: list[str] = field(default_factory=list)
    """What the newest answer said."""
    headings: list[str] = field(default_factory=list)
    """Of the page, since it was opened."""
    _socket: ClientConnection | None = None
    _open: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> "Visitor":
        place = urlsplit(self.address)
        self._socket = self._open.enter_context(
            connect(
                f"ws://{place.netloc}/_stcore/stream",
                subprotocols=["streamlit"],  # type: ignore[list-item]
                origin=self.address,  # type: ignore[arg-type]
                max_size=None,
            )
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def open(self) -> None:
        """Ask for the page."""
        self.headings = []
        self._ask(BackMsg())
        title = PAGES[self.page]
        if not (title in self.headings if title else self.headings):
            self.troubles.append(f"{self.page or 'home'} lacks its heading; it has {self.headings}")

    def press(self, label: str) -> None:
        """Press a button of the page that was drawn last."""
        message = BackMsg()
        pressed = message.rerun_script.widget_states.widgets.add()
        pressed.id, pressed.trigger_value = self.buttons[label], True
        self._ask(message)

    def watch(self, seconds: float) -> None:
        """Sit there: every fragment is redrawn when its time has come."""
        end = time.monotonic() + seconds
        due = {fragment: time.monotonic() for fragment in self.fragments}
        while (now := time.monotonic()) < end:
            for fragment, every_s in list(self.fragments.items()):
                if fragment in self.fragments and now >= due.setdefault(fragment, now):
                    due[fragment] = now + every_s
                    message = BackMsg()
                    message.rerun_script.fragment_id = fragment
                    message.rerun_script.is_auto_rerun = True
                    self._ask(message)
            time.sleep(0.05)

    def _ask(self, message: BackMsg) -> None:
        assert self._socket is not None
        message.rerun_script.query_string = urlencode(self.asked)
        message.rerun_script.page_name = self.page
        begun = time.monotonic()
        self._socket.send(message.SerializeToString())
        self.words = []
        if all(self._hear(answer) for answer in self._answers()):
            self.troubles.append(f"no answer from {self.page or 'home'} within {_PATIENCE_S:.0f} s")
        self.latencies_s.append(time.monotonic() - begun)

    def _answers(self) -> Iterator[ForwardMsg]:
        assert self._socket is not None
        end = time.monotonic() + _PATIENCE_S
        while (left := end - time.monotonic()) > 0:
            try:
                data = self._socket.recv(timeout=left)
            except TimeoutError:
                return
            answer = ForwardMsg()
            answer.ParseFromString(data if isinstance(data, bytes) else data.encode())
            yield answer

    def _hear(self, answer: ForwardMsg) -> bool:
        """Take one message; whether more belong to this answer."""
        kind = answer.WhichOneof("type")
        if kind == "script_finished":
            return answer.script_finished not in _ENDS
        if kind == "session_event" and answer.session_event.HasField("script_compilation_exception"):
            self.troubles.append(str(answer.session_event)[:300])
        if kind == "page_not_found":
            self.troubles.append(f"no page {self.page}")
        if kind == "new_session" and not answer.metadata.run.fragment_ids:
            self.fragments.clear()  # the whole page comes anew, with fragments of its own
        if kind == "stop_auto_rerun":
            for fragment in answer.stop_auto_rerun.fragment_ids:
                self.fragments.pop(fragment, None)
        if kind == "auto_rerun":
            self.fragments[answer.auto_rerun.fragment_id] = answer.auto_rerun.interval
        if kind == "delta" and answer.delta.WhichOneof("type") == "new_element":
            self._see(answer)
        return True

    def _see(self, answer: ForwardMsg) -> None:
        element = answer.delta.new_element
        what = element.WhichOneof("type")
        if what == "exception":
            self.troubles.append(f"{element.exception.type}: {element.exception.message}"[:300])
        elif what == "alert" and element.alert.format == Alert.ERROR:
            self.troubles.append(f"error box: {element.alert.body}"[:300])
        elif what == "heading":
            self.headings.append(element.heading.body)
        elif what == "button":
            self.buttons[element.button.label] = element.button.id
        elif what == "html":
            self.words.append(element.html.body)
        elif what == "markdown":
            self.words.append(element.markdown.body)
