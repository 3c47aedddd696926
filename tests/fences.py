import re


def fenced(text, info):
    """Content of each block whose opening fence has this info string, such as "sh" or "python run"."""
    return re.findall(rf"(?ms)^```{re.escape(info)}\n(.*?)^```$", text)
