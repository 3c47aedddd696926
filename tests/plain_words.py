"""Rules of plain English for docstrings, comments, error texts and Markdown."""

import ast
import io
import re
import textwrap
import tokenize

RULES = {  # name: (pattern, where: "first" = first sentence of a text, "any" = every sentence, matches that make a hit)
    "opener": (
        r"^(?:What|Who|Whom|Whose|Whoever|Whatever|Which|Where(?!as)|Beside|But for|Of(?! course)|By what|To whom|"
        r"In what|As many|So many|How(?! to\b)|That(?! is\b| means\b| way\b)|Whether(?! to\b| or not\b))\b",
        "first",
        1,
    ),
    "archaic": (
        r"\b(?:anew|likewise|beside|besides|whereof|thereof|whereby|wherein|therein|thereby|henceforth|hereafter|"
        r"for ever|nowhere|whoever|whichever|oneself|nobody|but for|save for|(?:of|than|no more than|by|at most|"
        r"in) so (?:many|much)|(?<!as )as much(?! as)|to spare|to be had|at once(?=[:;,.]| from| where|$)|"
        r"all the same|in the place of|of (?:its|their|our|your|one's|the user's|a user's|agents') own|(?:its|their|"
        r"our) own(?=[,.;:]|$)|one (?:does|has|gets|reads|knows|wants|may|cannot)(?= [a-z])|(?:all|those|they|he|"
        r"everyone) who\b|is none|are none|are (?:its|theirs|ours)|ours(?=[,.;:]|$| and)|is ours|(?:where|when|"
        r"if) (?:there is|there are|it has|that is|they have) none|other than they|goes? by\b|as (?:it is|they are|"
        r"it was|they were)(?=[,.;:]|$)|in (?:any|either) case(?=[,.;:]|$)|(?:one|each) after the other)\b",
        "any",
        1,
    ),
    "person": (
        r"\b(?:(?:is|are|was|were|been|be) told|tells?|(?<!that )told(?= of| by| what| where| that| the| as)|"
        r"says(?! \"| ')|is said|are said|hears? of|(?:is|are) heard|vouch\w*|(?:lies?|lay|lying) (?:in|on|at|below|"
        r"above|beside|between|where|there|within)|go(?:es)? on|went on|going on|stands? (?:back|beside|in|at|"
        r"for itself|where|there|behind|below|under|apart|alone)|knows? (?:nothing|of|no|its|their|what|how|which)|"
        r"leaves? off|let go|is let|gives? up|(?:comes?|came) (?:about|to its|to their|to an|to no|from where)|"
        r"takes? turns|is asked|are asked|looks? (?:into|like nothing)|is (?:there|gone|left) (?:for|to)|is spared|"
        r"spares? (?:the|a|it)|to blame|has yet|wants? to)\b",
        "any",
        1,
    ),
    "long": (r"\S*\w\S*", "any", 31),
    "negation": (r"\b(?:not|no|none|nothing|nobody|nowhere|never|neither|nor|without|unless|cannot)\b", "any", 3),
    "nothing": (
        r"^(?:Nothing|Nobody|None)\s+(?!if\b|to\b|means?\b|otherwise|disables?)[a-z]|\b(?:nothing|nobody|"
        r"none) (?:that|which|who|is|are|has|of which)\b",
        "any",
        1,
    ),
    "pronoun": (
        r"^(?:It|They|He|Its|Their|Theirs|Others|The others|The same|Both|Such|Those|One)\b(?= (?:is|are|has|have|may|"
        r"must|can|does|do|as|by|of|for|in|with|where|[a-z]+ed)\b)|\b(?:the others?|others|the same|another|theirs|"
        r"the former|the latter|those)(?=[,.;:]|$)",
        "first",
        1,
    ),
    "clauses": (r"\b(?:that|which|who|whose|whom|where|what|whatever)\b(?! is,)", "any", 3),
    "genitive": (
        r"\bof (?:those|that|what|which|whom|whose|all that|one that|any that)\b|\b(?:those|that) of\b",
        "any",
        1,
    ),
    "passive": (
        r"\b(?:is|are|was|were|be|been|being)\s+(?:\w+ly\s+)?(?:\w+ed|given|taken|made|read|drawn|kept|told|said|"
        r"written|found|known|seen|held|left|sent|built|paid|lost|gone|begun|shown|chosen|cut|put|spent|meant|played|"
        r"had|done)\b",
        "any",
        3,
    ),
    "vague": (None, "any", 1),  # 8 words or more, of which two thirds are function words: no term names the thing
}
COMPILED = {
    n: (re.compile(p, 0 if n in ("opener", "pronoun") else re.I), w, least) for n, (p, w, least) in RULES.items() if p
}
FUNCTION = frozenset(
    """a an the this that these those of in on at by for from to into onto with without within over under
about above below beside between through during until before after again since as if so but or and nor not no than then
there here it its they them their theirs he she his her we us our ours you your one ones who whom whose which what where
when why how whether all any both each few many more most much other others another some such same own every either
neither none nothing nobody only very also too just even still yet ever never is are was were be been being am has have
had having do does did done can could may might must shall should will would lets let get gets got go goes gone going
come comes came take takes taken give gives given make makes made say says said tell tells told know knows known see
seen lie lies stand stands keep kept put out up down off back away once now thing things way else while because though
although alike anew least less first last next far long well whole""".split()
)
SECTION = re.compile(
    r"^(?:Args|Arguments|Returns?|Raises|Yields|Attributes|Example|Examples|Note|Notes|Warning|Parameters"
    r"|References?|See also)\s*:?$"
)
ENTRY = re.compile(r"^(\*{0,2}[\w.\[\], ]{1,40}(?: ?\([^)]*\))?(?: \*optional\*)?)\s?: +(?=\S)")


CODE = re.compile(r"[=({\[]|->|::|^\w+ - |  ")
OTHERS = ("|", ">>>", "...", "<", "#", "..", ":", "@", "=", "--", "+-", "!", "```", "~~~")  # starts of tables and code
REMARK = re.compile(r"type:|noqa|pragma|ruff|mypy|fmt:|coding|Copyright|Licensed|[\w.]+\(|[\w.]+ = ")


def plain(text):
    """Return a text as one line without code, links and markup."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"`{1,2}[^`]*`{1,2}|\$[^$]*\$|:\w+:`[^`]*`", "CODE", text))
    return " ".join(re.sub(r"[*_]{1,3}(?=\S)|(?<=\S)[*_]{1,3}|https?://\S+", "", text).split())


def sentences(text):
    text = re.sub(r"\b(e\.g|i\.e|etc|vs|cf|al|Fig|Eq|No)\.", r"\1", plain(text))
    return [s for s in re.split(r"(?<=[.!?])[\"')]*\s+(?=[A-Z\"'(\[])", text) if re.search(r"[A-Za-z]{2}.*\s", s)]


def blocks(doc, markdown=False):
    """Return (text, is_first) of each paragraph, list item or argument, without code and tables."""
    lines, out, para, fenced, first = doc.expandtabs(4).splitlines(), [], [], False, True

    def flush():
        nonlocal first
        if para:
            out.append((" ".join(para), first or markdown))
        first, para[:] = first and not para, []

    for line in lines:
        bare, indent = line.strip(), len(line) - len(line.lstrip())
        fenced ^= bare.startswith(("```", "~~~"))
        if fenced or not bare or bare.startswith(OTHERS) or SECTION.match(bare):
            flush()
            continue
        if indent >= 4 and not para and (markdown or (CODE.search(bare) and not ENTRY.match(bare))):
            continue
        item = re.match(r"(?:[-*+]|\d+[.)])\s+", bare)
        entry = None if markdown else ENTRY.match(bare)
        if item or (entry and indent >= 4):
            flush()
            first = first and markdown
        para.append(bare[item.end() :] if item else bare[entry.end() :] if entry and indent >= 4 else bare)
    flush()
    return out


def python_texts(source):
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            raw = node.value.value
            head, _, rest = raw.partition("\n")
            yield from blocks(head.strip() + "\n" + textwrap.dedent(rest))
        elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            for arg in node.exc.args:
                parts = [
                    p.value if isinstance(p, ast.Constant) else "CODE"
                    for p in getattr(arg, "values", [arg])
                    if isinstance(p, (ast.Constant, ast.FormattedValue))
                ]
                if parts and all(isinstance(p, str) for p in parts):
                    yield "".join(parts), False
    row, run = -2, []
    for token in [*tokenize.generate_tokens(io.StringIO(source).readline), None]:
        if token is not None and token.type != tokenize.COMMENT:
            continue
        text = "" if token is None else token.string.lstrip("#:! ").strip()
        if token is None or token.start[0] != row + 1 or token.line[: token.start[1]].strip():
            if run and not REMARK.match(run[0]):
                yield " ".join(run), True
            run = []
        if token is not None:
            row = token.start[0]
            run.append(text)


def faults(sentence, is_first):
    found = [
        name
        for name, (rule, where, least) in COMPILED.items()
        if (where == "any" or is_first)
        and len(rule.findall(sentence)) >= least
        and not (name == "opener" and sentence.endswith("?"))
    ]
    words = re.findall(r"[A-Za-z][A-Za-z'-]*", sentence)
    lower = [w.lower() for w in words]
    least = 10 if lower[:1] == ["if"] else 8  # after `Raises:`
    if len(words) >= least and sum(w in FUNCTION for w in lower) >= 0.67 * len(words):
        found.append("vague")
    if len(re.findall(r"[=*+/<>|]", sentence)) > 4 and "long" in found:
        found.remove("long")  # a formula
    return found


def read(paths):
    """Return a dict sentence -> (path, is_first) of pages and folders. A repeated sentence counts once."""
    found = {}
    for top in paths:
        for path in [top] if top.is_file() else sorted(p for e in ("*.py", "*.md") for p in top.rglob(e)):
            source = path.read_text(encoding="utf-8", errors="replace")
            for text, first in python_texts(source) if path.suffix == ".py" else blocks(source, markdown=True):
                for n, each in enumerate(sentences(text)):
                    found.setdefault(each, (str(path), first and n == 0))
    return found
