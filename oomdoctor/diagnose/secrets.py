"""What opens doors: passwords, keys and tokens, by their form or by the word before them.

The forms are public facts, as each service documents them; scanners of repositories such as
gitleaks and detect-secrets know the same ones. A secret without a form and without a word before
it cannot be recognized.

No expression backtracks: every repetition is bounded, or is over characters that cannot be what
follows it.
"""

from __future__ import annotations

import re

_PREFIXES = (
    # Hosts of code and packages.
    r"gh[pousr]_|github_pat_|gl(?:pat|rt|dt|cbt|ptt|ft|soat|agent|oas|imt|ffct)-|GR1348941|ATBB"
    r"|ATATT3|ATCTT3|npm_|pypi-|dckr_(?:pat|oat)_|rubygems_|glc_|glsa_|sgp_|AKCp|cmVmd",
    # Clouds.
    r"(?:AKIA|ASIA|AROA|AIDA|AGPA|ANPA|ANVA|AIPA|ABIA|ACCA|A3T[A-Z0-9])(?=[A-Z0-9]{12})|ABSK"
    r"|AIza|GOCSPX-|ya29\.|1//0|LTAI|do[opr]_v1_|dapi(?=[0-9a-f]{16})|hv[bsr]\.|fo1_|fm[12][ar]?_"
    r"|HRKU-|pul-(?=[0-9a-f]{16})|sha256~|EZ[AT]K|dp\.(?:pt|st|ct|sa|scim)\.|tskey-|nvapi-",
    # Models, experiments and messages.
    r"hf_|api_org_|sk-|sess-(?=\w{20})|pplx-|gsk_|r8_|xai-|xox[abeoprs]-|xapp-|xoxe\.|SG\."
    r"|[sr]k_(?:live|test|prod)_|whsec_|lin_api_|ntn_|PMAK-|pnu_|sntry[su]_|shp(?:at|ca|pa|ss)_"
    r"|figd_|sbp_|pscale_\w{2,8}_|key-(?=[0-9a-f]{32})|ops_eyJ|rdme_|xkeysib-",
)
"""How tokens begin."""

_SECRET_WORDS = (
    r"pass(?:word|wd|phrase|code)|pwd|(?:secret|private|api|access|account|auth|encryption|signing"
    r"|shared[_-]?access|subscription|license|ssh|session)[_-]?key(?:[_-]?id)?"
    r"|secret|credentials?|connection[_-]?string|_auth|authtoken"
)
_VALUE = (
    r"(?:(?P<quote>\\?[\"'])(?:(?!(?P=quote))[^\n])*"
    # An unquoted value ends where the next setting begins.
    r"|(?:(?![,;&]\s?[\"']?[\w.-]{1,40}[\"']?[=:])[^\s\"'])+)"
)
_IS = r"\\?[\"']?\s{0,3}(?:=>|:=|={1,2}|:)\s{0,3}"

SECRETS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(
            r"-----BEGIN [A-Z0-9 ]{0,60}PRIVATE KEY[A-Z ]{0,10}-----[^-\"']*"
            r"(?:-----END [A-Z0-9 ]{0,80}-----)?"
        ),
        "<private key>",
    ),
    (re.compile(r"\bAGE-SECRET-KEY-1\w+"), "<private key>"),
    (re.compile(r"\b(?:ssh-(?:rsa|dss|ed25519)|ecdsa-sha2-\w{1,20}) AAAA[\w+/=]+"), "<public key>"),
    (
        re.compile(
            r"(?i)\b((?:proxy-)?authorization|x-amz-security-token|(?:set-)?cookie)"
            rf"({_IS})(?:\\?\"[^\"\n]*|'[^'\n]*|[^\"'\n]+)"
        ),
        r"\1\2<token>",
    ),
    (re.compile(r"(?i)\b(bearer\s{1,3})[\w.~+/=-]{8,}"), r"\1<token>"),
    (re.compile(r"(?i)(passphrase\s{0,3}[:=]\s{0,3})[^\s\"'][^\"'\n]*"), r"\1<secret>"),
    (
        re.compile(
            rf"(?i)((?:{_SECRET_WORDS})(?:[_-]?(?:hash|value|id|base64|b64|file))?{_IS}){_VALUE}"
        ),
        r"\1<secret>",
    ),
    # Logs count tokens too: a small number after the word is no secret.
    (
        re.compile(
            rf"(?i)((?<!max_)(?<!pad_)(?<!eos_)(?<!bos_)(?<!unk_)(?<!cls_)(?<!sep_)(?<!mask_)token"
            rf"{_IS})(?!\\?[\"']?(?:\d{{1,9}}|none|null|true|false)\b(?![\w-])){_VALUE}"
        ),
        r"\1<token>",
    ),
    (
        re.compile(r"(?i)(\bkey\\?[\"']?\s{0,3}[:=]\s{0,3}\\?[\"']?)(?=[\w-]{0,80}\d)[\w+=-]{20,}"),
        r"\1<token>",
    ),
    (re.compile(r"(?i)([?&;]sig(?:nature)?=)[^&\s\"']+"), r"\1<token>"),
    (re.compile(rf"(?i)((?<![\w-])--?[\w-]{{0,40}}?(?:{_SECRET_WORDS}|token)\s{{1,3}}){_VALUE}"),
     r"\1<secret>"),
    (re.compile(r"(\bsshpass\s{1,3}-p\s{0,3}|\blogin\b[^\n]{0,80}?\s-p\s{1,3})\S+"),
     r"\1<secret>"),
    (re.compile(r"((?:^|\s)(?:-u|--user)[\s=]{1,3})[^\s:]{1,64}:\S+"), r"\1<user>:<secret>"),
    (re.compile(rf"\b(?:{'|'.join(_PREFIXES)})[\w.~+/=-]{{8,}}"), "<token>"),
    # JSON in base64 begins like this: a JSON Web Token, a Neptune token.
    (re.compile(r"\beyJ[\w+/=-]{8,}(?:\.[\w+/=-]+)*"), "<token>"),
    # Azure AD and Telegram.
    (re.compile(r"\b[\w~.]{3}\dQ~[\w~.-]{31,}"), "<token>"),
    (re.compile(r"\b\d{8,10}:AA[\w-]{30,}"), "<token>"),
    (re.compile(r"\barn:aws[\w-]{0,12}:[^\s\"',]+"), "<arn>"),
    (
        re.compile(
            r"\b(?:(?:GPU|MIG)-)?[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b"
        ),
        "<id>",
    ),
    # Long runs of letters and digits that nobody says aloud. An underscore makes it a name.
    (re.compile(r"\b(?=[A-Za-z+]{0,200}\d)(?=[\d+]{0,200}[A-Za-z])[A-Za-z0-9+]{32,}\b={0,2}"),
     "<token>"),
    (
        # Lines of a key in base64, which are 64 or 76 characters long; names of ops, which have
        # slashes too, are made of words.
        re.compile(r"(?<![\w+/=])(?![A-Za-z0-9+/]*[a-z]{9})[A-Za-z0-9+/]{60,}={0,2}(?![\w+/=])"),
        "<token>",
    ),
)  # fmt: skip
"""What to look for and what to write instead, in this order."""
