"""Names of secrets in many languages, and sentences that state one: "the password (for prod) is ...", "пароль — ...".

Pure. A sentence names a secret, may say of what, and links the name to a value: by a verb ("is"), a sign, or a word
such as "to" where something is changed ("reset the password to ..."). The value has to look generated.
"""

import re
from collections.abc import Mapping

from anamnesis_pipeline.parsing.redaction.values import is_generated, is_jumbled, without_technical_words

NATIVE_PASSWORDS = (
    r"losungswort|mot[ _-]de[ _-]passe|\bmdp\b|contrase(?:ñ|n)a|contrasenya|secreto|segredo|palavra[ -]passe"
    r"|senha|wachtwoord|parola(?: d'ordine)?|has(?:ł|l)(?:o|a|em)|l(?:ö|o)senord(?:et)?|salasana|adgangskoden?"
    r"|kodeordet|passordet|hesl(?:o|em|a)|(?:ş|s)(?:i|İ)fre(?:sini|niz|miz|si|yi|m|n)?|parola(?:sı|si|nız|niz|m)"
    r"|jelsz(?:ó|o)t?|jelszav(?:a|át|am)|lozinka|m(?:ậ|a)t kh(?:ẩ|a)u|kata sandi(?:nya)?"
    r"|парол(?:ь|я|ю|ем|ём|ей|е|і|и|а)|кодов(?:ое|е) слово|секрет|лозинка|κωδικ(?:ός|ό|ού)|συνθηματικό"
    r"|كلمة (?:المرور|السر)|סיסמ(?:ה|א|ת)|รหัสผ่าน|पासवर्ड"
    r"|密码|密碼|口令|パスワード|パスフレーズ|暗証(?:番号|コード)|비밀번호|패스워드|비번|암호"
)
NATIVE_KEYS = (
    r"API[- ]ключ(?:ом|а|у)?|секретн(?:ый|ий) ключ|ключ(?:ом|а|у)? (?:API|доступа|доступу|шифрования)|токен(?:ом|а|у)?"
    r"|API ?(?:キー|키|密钥|密鑰|金鑰)|シークレットキー|トークン|令牌|密钥|密鑰|金钥|金鑰|토큰"
    r"|klucz(?:em|a)? (?:api|dost(?:ę|e)powy)|kl(?:í|i)č (?:k )?api|api anahtar(?:ı|i)|api[- ]?kulcs"
)
"""Names that are rare outside text of these languages."""

_OF = (
    "for|of|to|on|at|from|that|which|we|i|used|von|vom|zum|zur|zu|am|für|beim?|im|des|der|dem|den|die|wir|ich"
    "|de|du|di|del|della|dello|des|da|do|dos|das|pour|para|per|van|voor|op|que|che|dat|som"
    "|od|dla|w|k|ke|na|för|till|på|til|pentru|za|untuk|của|от|для|к|ко|на|в|из|у|від|до|az|a|veritabanı|sunucu|για|του"
)
_WORD = r"(?:https?://)?[^\s:;,!?()\"=<>|{}\[\]]*[^\s:;,.!?()\"=<>|{}\[\]—–\-]"
_ASIDE = r" ?(?:\([^()\n]{1,40}\)|（[^（）\n]{1,40}）)"
_OF_WHAT = rf"(?: (?:(?:{_OF}) |d'|dell'|l')(?:{_WORD} ){{0,5}}{_WORD})"
_HELPING = (
    "now|again|has|have|had|been|was|is|are|got|just|already|newly|jetzt|wurde|ist|war|soeben|est|a|été|foi|fue|ha|sido"
    "|è|stata|stato|werd|zijn|zostało|zostalo|bylo|było|был|была|было|був|було|blev|har|este|fost"
)
_CHANGED = (
    "chang(?:ed|ing|e)|re-?set(?:ting|s)?|set(?:ting|s)?|updat(?:ed?|ing)|rotated?|switched"
    "|geändert|ändern?|gesetzt|setzen?|zurückgesetzt|umgestellt|changée?|changer|modifiée?|réinitialisée?|remplacée?"
    "|cambi(?:é|ó|ada|ado|ata|ato|ar|o)|alter(?:ei|ada|ado|ar)|mud(?:ei|ada|ar)|troquei|redefinida|redefini"
    "|restablecida|restablecí|actualizada|impostat[ao]|aggiornat[ao]|modificat[ao]|reimpostat[ao]"
    "|veranderd?|gewijzigd|wijzig|aangepast|ingesteld|gezet|zmieni(?:łem|łam|ono|one|ł|ła|ć|ony)|zmień"
    "|ustawi(?:łem|łam|ono|one|ł)|zresetowan[eo]|změn(?:il|ila|ěno|it)|změň(?:te)?|nastav(?:il|ila|eno|ené)"
    "|zmen(?:il|ila|ené)|смени(?:л[аи]?)?|сменён|измени(?:л[аи]?|ть)|измен[её]н|поменял[аи]?|поставил[аи]?"
    "|установил[аи]?|установлен|сброшен|сбросил[аи]?|обновил[аи]?|обновл[её]н|зміни(?:в|ла|ли)|змінено|встанови(?:в|ла)"
    "|встановлено|скинуто|оновлено|değiştir[^\\s.]*|ayarla[^\\s.]*|güncelle[^\\s.]*|változtat[^\\s.]*|módosít[^\\s.]*"
    "|állít[^\\s.]*|ändra(?:t|de)|bytte?|ændret|skiftet|endret|vaihdettu|vaihdoin|schimbat|promijen[^\\s.]*|diubah|diganti|đổi"
)
_TO = "to|as|auf|in|en|à|por|par|a|em|para|con|como|na|naar|op|на|til|till|thành|menjadi|from|von|de|da|z|с|з"
_IS = (
    "is|was|are|used to be|(?:should|must|will) be|ist|war|lautet|heißt|est|es|era|será|é|è|sarà|fue|wordt|jest|brzmi"
    "|je|zní|är|este|είναι|là|adalah|будет|буде|هي|هو|היא"
)
_NATIVE_IS = "to(?: jest)?|er|on|(?:[—–-] )?(?:это|це)|теперь|тепер|такой|такий|şu|şudur"
_NOW = "now|set to|still|just|jetzt|maintenant|ahora|agora|adesso|nu|teraz|nyní|такой|такий|теперь|тепер"
_SET = (
    "(?:已经|已被|已|被|现在|現在|目前|统一|重新)?"
    "(?:设置|設置|设定|設定|设|設|修改|变更|變更|更改|更新|重置|更换|改)(?:为|為|成了|成|到)"
)
_JOINED = rf"(?:{_SET}|就是|是|為|为|は(?:以下)?|が|を|는|은|가|이|를|을|คือ)(?:[：、]|: ?)?[ 　]?| (?:는|은) "
"""Links of languages that write the value behind them without a space."""
SENTENCE_TAIL = (
    rf"(?:{_ASIDE})?(?:(?:(?P<of>{_OF_WHAT})||(?P<loose>(?: {_WORD}){{1,3}}?))(?:"
    rf"(?P<native> (?:{_NATIVE_IS}):? )"
    rf"|(?P<is>(?: (?:now|again|jetzt|aktuell|currently))? (?:{_IS})(?: (?:{_NOW}))?:? )"
    rf"|(?P<to>(?: (?:{_HELPING})){{0,3}}(?: (?P<changed>{_CHANGED}))?(?: now)? (?:{_TO}):? )"
    rf"|(?P<dash> ?[—–] ?| - )|(?P<colon>(?P<stated>(?: (?:{_HELPING})){{0,3}} (?:{_CHANGED}|{_NOW}))? ?: ))"
    rf"|(?P<joined>{_JOINED})|(?P<beside>{_OF_WHAT}? ))"
    r"[「『《“”„«‘’‹]?(?P<quote>\*\*|[\"'`]?)[^\s0-9!$%^*+=?@~#&]{0,40}[0-9!$%^*+=?@~#&]"
)
"""Text behind a name in a sentence, up to the first digit or mark of the value."""
FIRST_WORDS = rf"(?i:{_OF}|{_HELPING}|{_CHANGED}|{_TO}|{_IS})[ :]|d'|dell'|l'|—|–|- "
"""Words behind the space after a name of any language."""

_CHANGES = re.compile(rf"(?i)(?<!\w)(?:{_CHANGED})(?!\w)")
_ASKS = re.compile(
    r"(?i)\b(?:with|us(?:e|ed|ing)|by|enter|type|try|mit|avec|con|com|met)"
    r"(?: (?:the|a|my|this|our|dem|le|la|o|new|temporary|following)){0,2} \Z"
)
_OTHER_SCRIPT = re.compile(
    "[\u2018-\u201f\u2039\u203a\u00ab\u00bb\u2026\u0e00-\u0e7f\u1100-\u11ff"
    "\u3000-\u30ff\u3400-\u9fff\uac00-\ud7af\uff00-\uffef]"
)
_NAME_OR_TIME = re.compile(
    r"[a-z][a-z0-9]*(?:[\-_.][a-z0-9]+)+[.:]?|.*\d{4}-\d\d-\d\d.*|.*\d\d:\d\d.*|\S+@[\w\-]+\.\S+"
)
_MARK = re.compile(r"[!$%^*+=?@~#&]")
_ALL_CLASSES = re.compile(r"(?=.*[a-z])(?=.*[A-Z]).*\d")
_BOTH_CASES_OR_MARK = re.compile(r"(?=.*[a-z]).*[A-Z]|.*[!$%^*+=?~#&]")
FORMER = re.compile(
    r" (?:from|von|de|da|van|z|ze|с|з) [\"'`]?([^\s\"'`]{8,64})[\"'`]? (?:to|auf|zu|a|en|à|para|naar|na|на) "
)
"""The previous value, where one is changed."""
CHARS_AROUND = 60
"""Characters before a name, or behind its value, that may hold the verb of the sentence."""


def is_told(said: Mapping[str, str | None], value: str, before: str, after: str) -> bool:
    """Return whether a sentence states a secret with this value.

    :param said: the groups of a match; the one that links name and value is not None.
    :param before: the text before the name; `after` is the text behind the value.
    """
    is_native, strong = bool(said["native_password"] or said["native_key"]), bool(said["strong"])
    if _OTHER_SCRIPT.match(value) or not _is_made_up(value) or (said["loose"] and not is_native):
        return False
    of_what = said["of"] or said["loose"] or said["stated"]
    if said["is"] or (is_native and (said["native"] or said["joined"])) or (said["colon"] and of_what):
        return True
    has_both_or_mark = bool(_BOTH_CASES_OR_MARK.match(value))
    is_technical = not (has_both_or_mark or _is_made_up(without_technical_words(value)))
    if said["joined"] or said["colon"] or is_technical or _NAME_OR_TIME.fullmatch(value):
        return False
    if said["to"] or said["native"]:
        return bool(said["changed"]) or any(_CHANGES.search(words or "") for words in (before, said["of"], after))
    is_direct = is_native and said["beside"] in {None, " "}
    return strong and (is_direct or (has_both_or_mark and bool(said["dash"] or is_native or _ASKS.search(before))))


def _is_made_up(value: str) -> bool:
    if is_generated(value):
        return True
    return bool(_MARK.search(value)) and (is_jumbled(value) or bool(_ALL_CLASSES.match(value)))


def without_other_script(value: str) -> str:
    """Return a value up to the surrounding text, which may follow without a space."""
    end = _OTHER_SCRIPT.search(value)
    return value[: end.start()] if end and end.start() else value
