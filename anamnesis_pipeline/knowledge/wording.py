"""How people and Claude word what may hold: corrections, preferences, decisions, facts, reasons. English, German,
Spanish and French. Pure.
"""

import re

_I = re.IGNORECASE

CORRECTS = re.compile(
    r"^(?:no\b|nope|wrong|stop\b|don['’]?t\b|do not\b|not (?:like )?that|that['’]?s (?:not|wrong)|again[,:]"
    r"|i (?:already )?(?:said|told|asked)|(?:please )?(?:don['’]?t|never|stop)\b|why (?:did|are|do) you|undo|revert"
    r"|you (?:forgot|should(?:n['’]?t| not)? have|keep|still|again|missed|used|just)"
    r"|nein\b|nicht\b|nochmal\b|falsch|schon wieder|ich (?:sagte|habe (?:doch )?gesagt)|otra vez|non\b|encore)"
    r"|\b(?:i told you|as i said|how many times|not what i (?:asked|wanted)|we don['’]?t (?:do|use))\b",
    _I,
)
"""A person corrects Claude."""
PREFERS = re.compile(
    r"\b(?:always|never|from now on|in (?:the )?future|every time|whenever|as always)\b"
    r"|\bi(?:['’]d| would)? (?:really )?(?:prefer|like|love|hate|want(?: you)? to|don['’]?t (?:like|want))\b"
    r"|\bwe (?:always|never|prefer|only|do(?:n['’]?t| not)|use)\b|\bthis repo is\b|\bmust (?:always|never|not)\b"
    r"|\bplease (?:use|no|don['’]?t|keep|always|never|stop|avoid)\b|^(?:use|avoid|prefer|keep|stick (?:to|with))\b"
    r"|\b(?:immer|niemals|nie|ab jetzt|künftig|ich (?:mag|möchte|will))\b|\b(?:siempre|nunca|a partir de ahora"
    r"|prefiero)\b"
    r"|\b(?:toujours|jamais|désormais|je préfère)\b",
    _I,
)
"""A person tells what is wanted in general."""
STATES = re.compile(
    r"\b(?:remember(?: that)?|keep in mind|for the record|note that|fyi|just so you know|for your information"
    r"|good to know|don['’]?t forget|merk dir|denk daran|zur info|recuerda|ten en cuenta|rappelle-toi|note bien)\b",
    _I,
)
"""A person tells something to be remembered."""
DECIDES = re.compile(
    r"\b(?:we|i|they|team)(?:['’]ve| have| has)? (?:just |finally )?(?:decided|agreed|settled|opted|chose|picked)\b"
    r"|\b(?:let['’]?s|we(?:['’]ll| will| are going to|['’]re going to)|i(?:['’]ll| will)) (?:go (?:back )?(?:with"
    r"|to)|use"
    r"|switch(?: over)? to|move to|stick (?:to|with)|keep|drop|replace|stay|take)\b|\bdecision\s*:|\bwent with\b"
    r"|\bwe(?:['’]re| are) (?:going|sticking|switching|moving)"
    r"|\bgo back to\b|\bwe use\b|\bwe no longer\b"
    r"|\b(?:wir (?:nehmen|bleiben bei|wechseln|haben (?:uns )?entschieden|verwenden|nutzen))\b"
    r"|\b(?:hemos decidido|vamos a usar|usamos|on (?:garde|reste|prend|utilise)|nous (?:avons décidé|utilisons))\b",
    _I,
)
CHANGES = re.compile(
    r"\b(?:no longer|not any ?more|(?:was|were|is|are|been|got) (?:now )?(?:removed|deleted|renamed|replaced|retired"
    r"|deprecated|migrated|moved|dropped|shut down|decommissioned|turned off|gone|archived)|used to be|ha(?:s|ve) moved"
    r"|nicht mehr|jetzt|inzwischen|ya no|ahora|ne \w+ plus|maintenant)\b"
    r"|(?<!^)\bnow\b(?!,? (?:let|i|we)\b)",
    _I,
)
"""Something is no longer as it was."""
NARRATES = re.compile(
    r"\W*(?:now\b|let['’]?s?\b|i\b|i['’]|continuing|next|here\b|here['’]|first|then|close|remove|update|add|task\b"
    r"|all \d|all \*\*"
    r"|\d+ (?:new )?tests?|good\b|great\b|one more|the only|everything)",
    _I,
)
"""Claude tells what it is doing or has done in this session."""
REASONS = re.compile(
    r"\b(?:because|since (?!\w+ (?:\d|january|february|march|april|may|june|july|august|september|october|november))"
    r"|so that|otherwise|in order to|due to"
    r"|as (?!(?:it is|they are)(?:\W|$))(?:it|they|we|the|\w+ (?:exports?|needs?|has|have|is|are|does))|reason"
    r"|to (?:avoid|keep|prevent|reduce|make sure)|turned out|thanks to|would (?:have|break|need)"
    r"|asked for (?:it|that|this)|weil|damit|denn|sonst|wegen|porque|para que|ya que|debido a|parce que|car|afin de)\b",
    _I,
)
GIVES_REASON = re.compile(
    r"(?:because|since|otherwise|the reason|reason:|this way|that way|it (?:keeps|avoids|breaks|broke|is)"
    r"|they (?:break|broke|are)|weil|sonst|porque|parce que)\b",
    _I,
)
"""A sentence that gives the reason of the one before it."""
IDLE = re.compile(
    r"\?\s*$|^>|^(?:so |and )?(?:what|why|how|where|when|who|which|can you|could you)\b"
    r"|\bwhat['’]?s (?:going|wrong|up)\b|\b(?:what if|maybe|perhaps|might|could we|should we|i wonder|wondering"
    r"|suppose|hypothetical\w*"
    r"|for example"
    r"|e\.g\.|imagine|some ?day|not sure|thinking (?:of|about)|consider(?:ing)?|lol|haha|/s|yeah right|oh great"
    r"|sure,? (?:let['’]?s|because)|someone (?:on|in|at)|according to|vielleicht|was wäre|könnten wir|quizás"
    r"|peut-être)\b",
    _I,
)
"""Questions, guesses, quotes, jokes: nothing that holds."""
TELLS_FIX = re.compile(
    r"\b(?:the (?:fix|solution|workaround|(?:root )?cause|culprit) (?:is|was)|fixed (?:it|this|that)? ?(?:by|with)"
    r"|fixed"
    r" (?:it|the)|root cause|behoben (?:durch|mit)|ursache|arreglado con|solucionado con|corrigé (?:par|avec))\b",
    _I,
)
"""A sentence that says what fixed the last error, even if it does not name it."""
FIXED = re.compile(
    r"\b(?:fix(?:ed|es)?|root cause|solved|resolved|works? (?:now|again)|turned out|because|needs? to be|had to"
    r"|instead of|was missing|is gone|must be|should be|behoben|gelöst|fehlte|arreglad[oa]|faltaba|corrigé|manquait)\b",
    _I,
)
"""A sentence that may say what fixed an error that it names."""
NEGATIONS = re.compile(
    r"\b(?:never|no longer|not any ?more|without|stop(?:ped)?|avoid|cannot|forbid(?:den)?|drop(?:ped)?|(?:do|does"
    r"|did|is"
    r"|are|was|were|has|have|must|should|will|can) not|disabl(?:e|ed)|nicht|nie(?:mals)?|keine?[nrs]?|nunca|jamás"
    r"|jamais"
    r"|ne \w+ (?:pas|plus))\b|n['’]t\b",
    _I,
)
REJECTED = re.compile(
    r"\b(?:instead of|rather than|without|ohne|sin|sans|et pas|no longer|not any ?more|don['’]?t use|do not use|not"
    r"|no|never"
    r"|stop using|(?:away|switched|moved) from|drop(?:ped|ping)?|replac(?:e|ed|ing)|remov(?:e|ed|ing)|got rid of"
    r"|retired?"
    r"|nicht|keine?[nrs]?|nie(?:mals)?|statt|nunca|ya no|en vez de|pas de|jamais|plus de)\s+((?:[\w+#./-]+\s?){1,5})",
    _I,
)
"""What is turned down, and what by."""
BECAUSE = re.compile(r"\b(?:because|since|so that|weil|denn|damit|porque|ya que|parce que|car)\b[^,;]*", _I)
"""The reason of a sentence."""
CONSEQUENCES = re.compile(
    r"\b(?:or|otherwise|else|so that|because|since|if|when|until|unless|oder|sonst|weil|wenn|porque|si|sinon)\b.*", _I
)
"""The rest of a sentence behind what it says in the main."""
CORRECTION = re.compile(r"(?:correction|korrektur|corrección|correction)\b", _I)
"""A note that corrects another one."""
CORRECTED = re.compile(
    r"\b(?:now|correction|no longer|changed|raised|lowered|instead|not|was|were|used to|from|jetzt|nicht mehr|ahora"
    r"|ya no)\b",
    _I,
)
"""A sentence that says that something was otherwise."""
VERBS = re.compile(
    r"is|are|was|were|has|have|had|runs?|uses?|takes?|weighs?|reach\w*|listens?|contains?|holds?|needs?|keeps?|kept"
    r"|stores?|lasts?"
    r"|costs?|supports?|allows?|waits?|sends?|serves?|samples?|hat|haben|ist|sind|enthält|tiene|tienen|es|son|ont"
    r"|est|sont",
    _I,
)
"""Words behind which a sentence says something of what it is about."""
DECLARES = re.compile(
    r"\b(?:is|are|was|has|have|comes?|lives?|needs?|we|our|ist|sind|wir|unsere?|es|está|son|nuestr[oa]|nous|notre"
    r"|est|sont)\b",
    _I,
)
ORDERS = re.compile(
    r"^(?:(?:and|now|then|ok|okay|good|great|please|yes|so|also),? )*(?:run|fix|add|make|write|create|update|check"
    r"|look|show|commit"
    r"|push|deploy|test|build|open|read|explain|continue|go|try|remove|delete|rename|move|split|plot|ship|do|let"
    r"|give|find|see"
    r"|start|stop|restart|merge|rebase|release|cut|set|put|change|refactor|implement|install|upgrade|review)\b",
    _I,
)
"""A sentence that asks for work states nothing."""
GONE = re.compile(
    r"((?:[\w+#./-]+\s+){1,4}?)(?:(?:is|are|was|were|(?:has|have) been|got|ist|sind|wurden?|est|sont|a été|fue|está)\s+"
    r"(?:now\s+)?(?:gone|removed|deleted|cancell?ed|closed|retired|dead|switched off|turned off|shut down|dropped"
    r"|decommissioned|discontinued|abgeschaltet|entfernt|gelöscht|gekündigt|weg|supprimée?s?|arrêtée?s?"
    r"|eliminad[oa]s?)|left (?:us|the (?:company|team))|(?:no longer|doesn['’]t|does not) exists?|n['’]existe plus"
    r"|ya no existe)\b",
    _I,
)
"""What is there no longer, and the words for that."""
DENIED_NUMBER = re.compile(
    r"\b(?:not|no longer|instead of|rather than|nicht(?: mehr)?|statt|ya no|en vez de|et pas|plus|au lieu de)\s+"
    r"((?:[\w+#./-]+\s+){0,2}?\d[\w.,]*)",
    _I,
)
"""A number that is turned down."""
CEASED = re.compile(
    r"\b(?:no longer|not any ?more|any ?more|stopped|stop|gave up|nicht mehr|ya no|dejamos de|n(?:e |['’])\w+ plus)\b",
    _I,
)
"""Something is no longer done."""
LACKS = re.compile(
    r"\b(?:do(?:es)?(?:n['’]t| not) exist|no such|not found|could not resolve|unknown|no rule to make target)\b", _I
)
"""An error says that something is not there."""
COPULAS = re.compile(r"is|are|ist|sind|es|son|est|sont", _I)
USES = re.compile(r"uses?|using|nimm|nutze|verwende|utilise[rz]?|usa[rd]?|usamos|usen", _I)
WORK = re.compile(
    rf"{ORDERS.pattern}|^(?!the\b|we\b|our\b|all\b|each\b|der\b|die\b|das\b|le\b|la\b|les\b|el\b|los\b|las\b)[\w-]+"
    r" (?:the|an?|this|that|these|those|all|it|me|us|them|my|our|every|each|any|some|den|die|das|eine?n?|le|la|les|une?"
    r"|el|los|las)\b",
    _I,
)
"""A sentence that asks for work by its form: a verb, and at once its object."""
TROUBLE = re.compile(
    r"\b(?:fail(?:s|ing)?|(?<=\w )failed|broken?|breaks|missing|crash(?:es|ed)?|errors?|bugs?|slow|stuck|hangs?"
    r"|wrong|down"
    r"|(?:n['’]t|not) (?:work|load|start|open|find)\w*|schlägt fehl|fehlt|fehler\w*|kaputt|abgestürzt|langsam|falla"
    r"|falta|roto|lent[oa]?|échou\w*|manque|cassée?)\b",
    _I,
)
"""Something is wrong at present; that does not say how it is meant to be."""
WE = re.compile(r"^(?:we|wir|nous|on|nosotr[oa]s)\b", _I)
