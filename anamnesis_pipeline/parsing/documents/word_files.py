"""Word's documents: .docx, .doc and .rtf."""

import re
import shutil
import subprocess
import tempfile

from anamnesis_pipeline.errors import DocumentUnreadable
from anamnesis_pipeline.parsing.documents import packed
from anamnesis_pipeline.parsing.documents.docx_blocks import docx_blocks
from anamnesis_pipeline.parsing.documents.plain import tidy

ANTIWORD_S = 30
"""Timeout of antiword for one document."""
MAX_RTF_BYTES = 16 << 20


def docx_text(data: bytes) -> str:
    """Return the content of a .docx as Markdown."""
    packed.opened(data).close()
    return tidy("\n\n".join(docx_blocks(data)))


def doc_text(data: bytes) -> str:
    """Return the text of a .doc, read by antiword; a file of another format with that name is read as what it is."""
    if data.lstrip().startswith(b"{\\rtf"):
        return rtf_text(data)
    if data.startswith(b"PK"):
        return docx_text(data)
    antiword = shutil.which("antiword")
    if not antiword:
        raise DocumentUnreadable("the command antiword, which reads .doc, is not installed")
    with tempfile.NamedTemporaryFile(suffix=".doc") as copy:
        copy.write(data)
        copy.flush()
        command = [antiword, "-m", "UTF-8.txt", "-w", "0", copy.name]
        try:
            done = subprocess.run(command, capture_output=True, timeout=ANTIWORD_S, check=False)
        except subprocess.TimeoutExpired as exc:
            raise DocumentUnreadable(f"antiword did not read it within {ANTIWORD_S} s") from exc
    if done.returncode or not done.stdout.strip():
        problem = (done.stderr or done.stdout).decode("utf-8", "replace").replace(copy.name, "it").strip()
        raise DocumentUnreadable(f"antiword cannot read it: {problem[:200]}")
    return tidy(done.stdout.decode("utf-8", "replace"))


def rtf_text(data: bytes) -> str:
    """Return the text of an .rtf, without its pictures."""
    if not data.lstrip().startswith(b"{\\rtf"):
        raise DocumentUnreadable("it does not begin as RTF does")
    from striprtf.striprtf import rtf_to_text

    data = re.sub(rb"[0-9a-fA-F\r\n]{2000,}", b"", data)  # pictures
    if len(data) > MAX_RTF_BYTES:
        raise DocumentUnreadable(f"it has {len(data)} bytes without its pictures; at most {MAX_RTF_BYTES} are read")
    text: str = rtf_to_text(data.decode("latin-1"), errors="ignore")  # type: ignore[no-untyped-call]
    return tidy(text)
