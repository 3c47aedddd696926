import re


def fenced(text, info):
    """Return the content of each Markdown block with this info string after the fence, such as "python run"."""
    return re.findall(rf"(?ms)^```{re.escape(info)}\n(.*?)^```$", text)
