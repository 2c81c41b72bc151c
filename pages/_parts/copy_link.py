"""The button that copies the address of the present page."""

from .served import served

_HTML = (
    '<div class="rs-copy"><button type="button" title="This address shows the same page and study in '
    'another browser.">Copy link</button><span class="rs-vh" role="status"></span>'
    '<input hidden readonly aria-label="Address of this page"></div>'
)


def copy_link(address: str) -> None:
    """One click copies; where the browser refuses that, the address is shown."""
    served("copy", _HTML)(key="copy link", data={"link": address}, width="content")
