"""Detect documents and their format by file name alone."""

import re
from functools import lru_cache

CODE = {
    "bash": "sh bash zsh ksh bats",
    "c": "c h",
    "cpp": "cpp cc cxx hpp hh hxx ino",
    "csharp": "cs",
    "css": "css scss less",
    "dart": "dart",
    "elixir": "ex exs",
    "go": "go",
    "graphql": "graphql gql",
    "groovy": "groovy gradle",
    "haskell": "hs",
    "java": "java",
    "javascript": "js jsx mjs cjs",
    "kotlin": "kt kts",
    "lua": "lua",
    "perl": "pl pm",
    "php": "php",
    "powershell": "ps1 psm1",
    "proto": "proto",
    "python": "py pyi pyw",
    "r": "r",
    "ruby": "rb rake gemspec",
    "rust": "rs",
    "scala": "scala",
    "sql": "sql",
    "svelte": "svelte",
    "swift": "swift",
    "tsx": "tsx",
    "typescript": "ts mts cts",
    "vue": "vue",
    "zig": "zig",
}
"""Language -> its file extensions. The language is the format."""

CONFIG = {
    "cmake": "cmake",
    "ini": "ini cfg conf editorconfig service timer socket mount desktop",
    "nix": "nix",
    "properties": "properties",
    "terraform": "tf tfvars hcl",
    "toml": "toml",
    "xml": "xml",
    "yaml": "yml yaml",
}

TEXTS = {
    "csv": "csv",
    "json": "json",
    "markdown": "md markdown mdx mdown mkd",
    "rst": "rst",
    "text": "txt text adoc org tex",
    "tsv": "tsv tab",
}

CONVERTED = {
    "doc": "doc",
    "docx": "docx docm",
    "eml": "eml",
    "html": "html htm xhtml",
    "mbox": "mbox",
    "notebook": "ipynb",
    "ods": "ods",
    "odt": "odt",
    "pages": "pages",
    "pdf": "pdf",
    "rtf": "rtf",
    "xls": "xls",
    "xlsx": "xlsx xlsm",
}
"""Formats that are converted to Markdown."""

_NAMES = {
    "dockerfile": "dockerfile",
    "containerfile": "dockerfile",
    "makefile": "makefile",
    "gnumakefile": "makefile",
    "justfile": "makefile",
    "vagrantfile": "ruby",
    "rakefile": "ruby",
    "gemfile": "ruby",
    "jenkinsfile": "groovy",
    "procfile": "yaml",
    "cmakelists.txt": "cmake",
    "go.mod": "text",
    "readme": "text",
    "changelog": "text",
    "license": "text",
    "authors": "text",
    "notes": "text",
    "todo": "text",
    "crontab": "text",
    ".gitignore": "text",
    ".dockerignore": "text",
    ".editorconfig": "ini",
    ".bashrc": "bash",
    ".bash_aliases": "bash",
    ".profile": "bash",
    ".zshrc": "bash",
    "env-example": "dotenv",
    ".env.example": "dotenv",
    ".env.sample": "dotenv",
    ".env.template": "dotenv",
    ".env.dist": "dotenv",
}

CODE_FORMATS = frozenset(CODE)
CONFIG_FORMATS = frozenset(CONFIG) | {"dockerfile", "makefile", "dotenv"}

_BY_EXTENSION = {
    extension: name
    for table in (CODE, CONFIG, TEXTS, CONVERTED)
    for name, extensions in table.items()
    for extension in extensions.split()
}

_NEVER = re.compile(
    r"""
      \.env | \.env\..* | .*\.env                                       # values of a deployment: secrets
    | id_(rsa|dsa|ecdsa|ed25519).* | .*\.(pem|key|p12|pfx|jks|kdbx|keystore)
    | \.?(credentials|secrets?)(\..*)? | \.netrc | \.npmrc | \.pypirc | \.pgpass | \.htpasswd | kubeconfig
    | (service[-_]?account|client_secret).*\.json | .*\.tfstate.* | .*\.tfvars
    | .*[-.]lock(\.(json|ya?ml))? | .*-shrinkwrap\.json | go\.sum       # written by tools, for tools
    | .*[.-]min\.(js|css|mjs) | .*\.bundle\.js | .*\.map | .*\.d\.ts\.map | .*_pb2(_grpc)?\.pyi? | .*\.pb\.go
    | ~\$.* | \._.* | \.ds_store                                        # left by editors and systems
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)


@lru_cache(maxsize=1_000)  # each step of a crawl asks for its current file
def format_of(path: str) -> str | None:
    """Return the format of the file at `path`, judged by its name; None: it is no document, or must not be read.

    For code and configuration it is the language: `python`, `yaml`. Files that exist to hold secrets, generated files
    (locks, minified code) and files that are not meant for reading have none.
    """
    name = path.replace("\\", "/").rsplit("/", 1)[-1].lower()
    if name in _NAMES:
        return _NAMES[name]
    if _NEVER.fullmatch(name):
        return None
    if name.startswith(("dockerfile.", "containerfile.")):
        return "dockerfile"
    if name.startswith("makefile."):
        return "makefile"
    stem, dot, extension = name.rpartition(".")
    return _BY_EXTENSION.get(extension) if dot and stem else None
