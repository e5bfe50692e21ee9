"""How people and Claude word what may hold: corrections, preferences, decisions, facts, reasons. English, German,
Spanish and French. Pure.
"""

import re

_I = re.IGNORECASE

CORRECTS = re.compile(
    r"^(?!no longer|no (?:problem|need|idea|worries|thanks)|no,? (?:thanks|thank you|that['’]?s all)"
    r"|don['’]?t (?:worry"
    r"|bother))"
    r"(?:no\b|nope|wrong|stop\b|don['’]?t\b|do not\b|not (?:like )?(?:that|this)|keine?[nrs]?\b|n(?:e "
    r"|['’])\w+ (?:pas|plus|jamais)\b|not [\w.-]+,|that['’]?s (?:not|wrong)"
    r"|again\b|actually\b"
    r"|that isn['’]?t (?:right|correct)|i (?:already )?(?:said|told|asked|don['’]?t want)"
    r"|(?:please )?(?:don['’]?t|never|stop|no)\b|why (?:did|are|do) you|undo|revert"
    r"|you (?:forgot|should(?:n['’]?t| not)? have|keep|still|again|missed|used|just|must)|you \w+.*\bagain\b"
    r"|nein\b|nicht\b|nochmal\b|falsch|das ist falsch|schon wieder|du hast (?:schon )?wieder|lass das|hör auf"
    r"|ich (?:sagte|habe (?:doch )?gesagt)|otra vez|has vuelto|así no|non\b|encore|tu as encore|arrête|pas d(?:e "
    r"|['’])"
    r"|you (?:\w+ed|wrote|put|made|left|took|did|broke)\b)"
    r"|\b(?:i told you|(?:as|like) i said|how many times|don['’]?t do (?:that|this|it)|not what i (?:asked|wanted)"
    r"|we don['’]?t (?:do|use))\b"
    r"|\bagain[,:.]? (?:leave|take|remove|use|put|keep|no|not|please)\b|, (?:not|nicht|pas) [\w-]+(?: \w+)?[.!]*$",
    _I,
)
"""A person corrects Claude."""
FORBIDS = re.compile(
    r"(?:please |bitte )?(?:never|don['’]?t|do not|no(?![,:.])|keine?[nrs]?|nicht|non|pas d(?:e |['’])"
    r"|n(?:e |['’])\w+ (?:pas|plus|jamais))\b",
    _I,
)
"""A correction that is a rule where nothing was done yet."""
REPEATS = re.compile(
    r"\b(?:(?:as|like) i said|as (?:always|usual|before)|i told you|i (?:already )?said|wie (?:gesagt|immer)"
    r"|ich sagte|como (?:siempre|dije)|comme (?:toujours|d['’]habitude|je l['’]ai dit))\b",
    _I,
)
"""A person says what was said before."""
PREFERS = re.compile(
    r"\b(?:always|never|from now on|in (?:the )?future|every time|whenever|as always)\b"
    r"|\b(?:(?:as|like) i said|wie gesagt|wie immer|como (?:siempre|dije)|comme (?:toujours|d['’]habitude))\b"
    r"|\bgoing forward\b|^(?:évitez?|evita|vermeide|verwende|benutze?|nutze|utilisez?|usa)\b"
    r"|\bi(?:['’]d| would)? (?:really )?(?:prefer|like|love|hate"
    r"|want(?: you)? to|don['’]?t (?:like|want))\b"
    r"|\bwe (?:always|never|prefer|only|do(?:n['’]?t| not)|use)\b|\bthis repo is\b|\bmust (?:always|never|not)\b"
    r"|\bplease (?:use|no|don['’]?t|keep|always|never|stop|avoid)\b|^(?:use|avoid|prefer|keep|stick (?:to|with))\b"
    r"|\b(?:immer|niemals|nie|ab jetzt|künftig|ich (?:mag|möchte|will))\b|\b(?:siempre|nunca|a partir de ahora"
    r"|prefiero)\b"
    r"|\b(?:toujours|jamais|désormais|je préfère|keine? \w+ mehr)\b",
    _I,
)
"""A person tells what is wanted in general."""
WISHES = re.compile(
    r"^(?!.*\b(?:again|same|once|it|this|that)\b)(?:[\w'’-]+ ){1,8}(?:please|bitte|por favor|s['’]il te plaît)\b", _I
)
"""Without a verb in front, a person tells how something is to be."""
_TO_KEEP = (
    r"(?:remember(?! (?:when|which|whether|to)\b)|know|known|aware|in mind|forget(?! to\b)|remind(?:er)?"
    r"|for the record"
    r"|for (?:future|your) (?:reference|info(?:rmation)?)|be(?:ar)? (?:clear|in mind)|[’']re clear|fyi|nb"
    r"|heads[ -]up|note (?:that|well)|for (?:the future|later"
    r"|next time)"
    r"|write (?:this|that) down|important|by the way|btw|merke?|denk daran|zur info|wichtig|beachte|hinweis|weißt"
    r"|wissen"
    r"|für später|übrigens|vergiss nicht|notier|recuerda(?! \w+[aei]r\b)|acuérdate|ten en cuenta|ojo|sepas|saber"
    r"|importante|para luego|por cierto|no olvides|apunta|rappel(?:le-toi)?|mémoire|retiens|note bien|à noter|saches?"
    r"|savoir|pour info|oublie pas|en tête|au fait)"
)
STATES = re.compile(
    rf"^(?:[\w'’-]+,? ){{0,6}}?{_TO_KEEP}(?: (?:that|this|well|dir|bien|ceci|que|dass))*(?:\s?[:,–—-]+\s"
    rf"|\s(?<=that )|\s(?<=que ))"
    rf"|(?:^|[,;:.!–—-]\s*|\b(?:and|so|but|also|please|bitte)\s+)(?:(?:please|don['’]?t ever) )?{_TO_KEEP} that "
    r"|^(?:please )?(?:remember|keep in mind|don['’]?t (?:ever )?forget|merk dir|recuerda|retiens)(?! to\b)[ ,:]"
    r"|,? (?:and )?(?:(?:please )?(?:remember (?:that|this)|keep (?:that|this) in mind|don['’]?t forget (?:that"
    r"|this))"
    r"|merk dir das|retiens-le|recuérdalo)[.!]*$",
    _I,
)
"""A person tells something to be remembered: a few words that say so stand before or behind it."""
ASIDES = re.compile(
    r"\b(?:by the way|btw|übrigens|por cierto|au fait|important|wichtig|importante|heads[ -]up|know)\b", _I
)
"""Of these words, those behind which anything may follow."""
ANNOUNCES = re.compile(
    rf"^(?:[\w'’-]+,? ){{0,6}}?{_TO_KEEP}(?: (?:this|that|bien|ceci|das|esto|one|well|the following|dir))*\W*$", _I
)
"""A sentence that only says that the next one is to be remembered."""
HEDGED = re.compile(
    r"\b(?:(?:i|we) (?:don['’]?t|do not|didn['’]?t) (?:know|remember)|ich weiß nicht|no sé|je ne sais pas"
    r"|probably|(?:more|most) likely|i (?:bet|think|guess|believe|suppose|assume)|as far as i know|afaik|(?:we|i"
    r"|you|one) (?:could|might|would|may)"
    r"|glaube ich|ich glaube|denke ich|wir könnten|creo|podríamos|je (?:crois|pense)|on pourrait)\b",
    _I,
)
"""What a person is not sure of."""
_VALUE = (
    r"(?:https?://|\w+://|[\w.-]+\.(?:com|org|net|io|internal|local|example|dev)\b|\d+\.\d+\.\d+\.\d+|\bport \d+"
    r"|\bpuerto \d+|\b[\w.-]+/[\w./-]+|`[^`]+`|#\w+|\b[a-z]+\d+\b)"
)
"""Something exact: an address, a path, a port, a name with a number."""
_OWN = r"(?:our|unsere?|nuestr[oa]s?|notre|nos)\b"
_DEFINITE = rf"(?:the|all|der|die|das|alle|el|la|los|las|le|les|l['’]|{_OWN})"
_DAY = r"(?:mon|tues|wednes|thurs|fri|satur|sun)days?"
TELLS = re.compile(
    rf"^{_DEFINITE}[^,;:?!]{{2,60}}?\b(?:lives?|listens?|resides?|runs?|(?:is|are) (?:at|on|in|called|named|hosted"
    rf"|stored"
    r"|kept|served|reachable|written|deployed)|läuft|liegt|liegen|lauscht|está|están|corre|escucha|se guardan?|est"
    r"|sont"
    rf"|se trouve|tourne|écoute)\b[^?!]*?{_VALUE}"
    rf"|^{_OWN} [^,;:?!]{{2,40}}?\b(?:is|are|runs? (?:on|in|at)|starts?|ends?|lives?|uses?|means|ist|läuft|beginnt|es"
    r"|está|est|tourne|commence)\b"
    rf"|^(?:the|our|we|all|[a-z]+s) [^?!]{{0,50}}?\b(?:every|each) (?:other |second |first |last )*(?:{_DAY}|month"
    rf"|quarter)"
    r"|^(?:wir|die|unsere?|nous|les?|los|las|el|la) [^?!]{0,50}?\b(?:jede[nrs]? \w+tag|chaque (?:lundi|mardi"
    r"|mercredi|jeudi"
    r"|vendredi)|cada (?:lunes|martes|miércoles|jueves|viernes))"
    r"|^only .+ (?:has|have|can|may|is|are) (?:access|allowed|permission|to)\b"
    r"|^(?:the|our) [^,;:?!]{0,40}\b(?:limit|quota|timeout|retention|deadline|budget) is \d[^,;:?!]*[.!]?$",
    _I,
)
"""A sentence on what something is, where it is or when it happens, in exact words."""
PASSING = re.compile(
    r"\b(?:fail(?:s|ed|ing)?|crash\w*|errors?|broken|breaks|down|slow|wrong|missing|hangs?|dies|leak\w*|bugs?|flaky"
    r"|again|right now|currently|at the moment|today|tonight|yesterday|just now|line \d+|taken|blank|red|loud"
    r"|gerade|kaputt|fehler\w*|abgestürzt|rot|plante|cassée?|falla|roto|ahora mismo|plantea|actuellement)\b",
    _I,
)
"""What is so for now only, mostly because something is not as it should be."""
TENTATIVE = re.compile(
    r"\b(?:try(?:ing)?|for now|tonight|this (?:once|time)|just for|yet|temporarily|experiment\w*|vorerst|erst ?mal"
    r"|probier\w*|por ahora|de momento|pour l['’]instant|essayons)\b",
    _I,
)
"""What is wanted for a try, or once."""
REPORTED = re.compile(
    r"\b(?:he|she|they|someone|somebody|(?:the|an?|this|that|der|die|ein|el|la|le|une?|un) [\w-]+) (?:says?|said"
    r"|claims?"
    r"|thinks?|writes?|wrote|believes?|sagt|meint|schreibt|behauptet|dice|dicen|dit|prétend)\b|\bover there\b",
    _I,
)
"""What another person says."""
_ADOPTED = (
    r"(?:go(?:ing)? (?:back )?(?:with|to|for)|us(?:e|ing)|adopt(?:ing)?|switch(?:ing)?(?: over| back)? to|mov(?:e"
    r"|ing) to"
    r"|migrat(?:e|ing) to|stick(?:ing)? (?:to|with)|keep(?:ing)?|drop(?:ping)?|ditch(?:ing)?|abandon(?:ing)?"
    r"|replac(?:e|ing)|stay(?:ing)?|tak(?:e|ing)|pick(?:ing)?|choos(?:e|ing)|settl(?:e|ing) (?:on|for)"
    r"|standardi[sz](?:e|ing) on)"
)
DECIDES = re.compile(
    r"(?<!\bif )\b(?:we|i|the team|everyone|everybody|all of us)(?:['’]ve| have| has)? (?:just "
    r"|finally )?(?:decided|agreed|settled|opted|chose"
    r"|picked)\b"
    rf"|\b(?:let['’]?s|we(?:['’]ll| will| are going to|['’]re going to)|i(?:['’]ll| will)) {_ADOPTED}\b"
    rf"|\bwe(?:['’]re| are) (?:now )?{_ADOPTED}\b"
    r"|(?:^|[.,;] )(?:the )?(?:final (?:call|decision)|decision|verdict|entscheidung|decisión|décision)\s*:"
    r"|\bwent with\b"
    r"|\bwe(?:['’]re| are) (?:going|sticking|switching|moving|done with)\b"
    r"|\b(?:go(?:ing)? )?back to\b|\bgo with\b|\bwe use\b|\bwe no longer\b"
    r"|\b(?:wir (?:nehmen|bleiben bei|wechseln|steigen um|setzen auf|ersetzen|verzichten auf"
    r"|haben (?:uns )?entschieden"
    r"|verwenden|nutzen|stellen \w+ um)|ich (?:nehme|habe mich entschieden))\b"
    r"|\b(?:h(?:emos|e) (?:decidido|elegido|optado)|vamos (?:a usar|con)|usa(?:re)?mos|nos quedamos con|(?:cambi"
    r"|pas|migr)amos"
    r" a|elegimos|dejamos"
    r"|on (?:garde|reste|prend|utilise|passe à|part sur|choisit|opte|abandonne|remplace|revient)"
    r"|nous (?:avons (?:décidé|choisi)|utilisons|gardons|passons à)|j['’]ai (?:décidé|choisi))\b",
    _I,
)
CHOOSES = re.compile(
    rf"(?:^|[,;:] |\b(?:please|bitte) ){_ADOPTED}\b.+\b(?:over|not)\b"
    r"|\b(?:instead of|rather than|anstelle|statt|plutôt que|au lieu de|en vez de|en lugar de)\b"
    r"|^(?:scrap|ditch|abandon|drop|stay|stick|switch|go with)\b|^\w+ it is\b",
    _I,
)
"""A person wants one thing in place of another; with its reason, that is a decision."""
GROUNDS = re.compile(
    r"[:;–—]\s+(?:\S+\s+){2,}|, (?!what\b|why\b|how\b|who\b|and\b|but\b|so\b|then\b|please\b|ok\b|und\b|y\b|et\b"
    r"|thanks\b"
    r"|not\b)(?=(?:\S+\s+){2,}\S)",
    _I,
)
"""What follows a decision without a word for it is its reason."""
PLANS = re.compile(
    r"\b(?:let['’]?s|we(?:['’]ll| will|['’]re going to| are going to)|we won['’]?t|we(?:['’]ll| will) (?:not|never))"
    r" (?!first|look|see|check|try|wait|talk|start|move on|leave it|have a|get|call|meet|continue|go on"
    r"|keep going)\w+ \w+"
    r"|^(?:ok(?:ay)?,? )?(?:it['’]?s )?(?:decided|settled|agreed)\b|^(?:the|our|der|die|das|le|la"
    r"|el) [^,]{2,40} (?:stays?"
    r"|remains?|bleibt|bleiben|reste|se queda)\b",
    _I,
)
"""A person says how something is to be; with its reason, that is a decision."""
CHANGES = re.compile(
    r"\b(?:no longer|not any ?more|(?:was|were|is|are|been|got) (?:now )?(?:removed|deleted|renamed|replaced|retired"
    r"|deprecated|migrated|moved|dropped|shut down|decommissioned|turned off|gone|archived)|used to be|ha(?:s"
    r"|ve) moved"
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
    r"\b(?:because|since (?!\w+ (?:\d|january|february|march|april|may|june|july|august|september|october|november)"
    r"|(?:last|then|yesterday|this|that|version|v?\d|\w+day)\b|the \w+(?:[.,;!]|$| (?!is|are|was|has|have|can|do"
    r"|does)))"
    r"|so that|otherwise|in order to|due to|as (?!(?:it is|they are)(?:\W|$))(?:(?:it|they|we|the)(?! should)"
    r"|\w+ (?:exports?|needs?|has|have|is"
    r"|are|does))|reason"
    r"|to (?:avoid|keep|prevent|reduce|make sure)|turned out|thanks to|would (?:have|break|need)"
    r"|asked for (?:it|that|this)|given that|seeing (?:that|as)|weil|damit|denn|sonst|wegen|porque|para que|ya que"
    r"|debido a|parce que|car"
    r"|afin de)\b",
    _I,
)
GIVES_REASON = re.compile(
    r"(?:because|since|otherwise|the reason|reason:|this way|that way|it (?:keeps|avoids|breaks|broke|is)"
    r"|they (?:break|broke|are)|[\w ]+ (?:is|are) (?:easier|faster|simpler|cheaper|safer|better)\b|weil|sonst"
    r"|porque|parce que)\b",
    _I,
)
"""A sentence that gives the reason of the one before it."""
IDLE = re.compile(
    r"\?\s*$|^>|^(?:so |and )?(?:what|why|how|where|who|which|can you|could you|when (?:do|does|did|is|are|was|were"
    r"|will|can|should))\b"
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
    r"\b(?:the (?:fix|solution|cure|workaround|(?:root )?cause|culprit|reason) (?:is|was)"
    r"|(?:fix|solv)ed (?:it|this|that)? ?(?:by|with)|(?:fixed|solved) (?:it|the)|same (?:fix|cause|cure)"
    r"|(?:is|was|did|same) the (?:fix|cure|trick|culprit)|root cause|did it|caused by|(?:is|was) enough"
    r"|behoben (?:durch|mit)|ursache|lag an|lag daran|half|(?:hat )?geholfen|die lösung"
    r"|arreglado con|solucionado con|la causa|la solución|se arregl\w+|bastó|alcanzó"
    r"|corrigé (?:par|avec)|la cause|la solution|a suffi|venait d\w*)\b|^(?:fixed|solved|behoben|gelöst|corrigé"
    r"|solucionado|arreglado)\s?:",
    _I,
)
"""A sentence that says what fixed the last error, even if it does not name it."""
FIXED = re.compile(
    r"\b(?:fix(?:ed|es)?|root cause|solved|resolved|works? (?:now|again)|turned out|because|needs? to be|had to"
    r"|instead of|was missing|is gone|must|should be|behoben|muss|gelöst|fehlte|hay que"
    r"|arreglad[oa]|faltaba|il faut|corrigé|manquait)\b",
    _I,
)
"""A sentence that may say what fixed an error that it names."""
UNSOLVED = re.compile(
    r"\b(?:still|not yet|no idea|can['’]?t (?:see|find|reproduce|tell)|could(?: not|n['’]t) (?:find|fix|reproduce)"
    r"|did(?: not|n['’]t) (?:help|work)|same error|gives up|given up"
    r"|immer noch|noch immer|weiterhin|noch nicht|keine ahnung|sigue|todavía|aún no|no funcion\w+|toujours pas"
    r"|pas encore|encore (?:là|pareil))\b",
    _I,
)
"""What was wrong is wrong after all, or its cause is unknown."""
RECALLS = re.compile(
    r"\b(?:same (?:\w+ )?(?:as|again|thing|story|fix|cause|cure|pattern|problem|error|mistake)|(?:as|like) (?:in"
    r" (?:january|february|march|april|may|june|july|august|september|october|november|december)|last (?:time|week"
    r"|month)|before)|(?:once|yet) again|this again|wie (?:im|letzte\w*|beim letzten|damals|schon)|schon wieder"
    r"|derselbe|dieselbe|dasselbe|como (?:en|la (?:otra|última) vez)|otra vez|lo mismo|l[ao]s? mism[oa]s?"
    r"|comme (?:en|la dernière fois|avant)|(?:la|le) même|encore)\b",
    _I,
)
"""A person knows it from before."""
NEGATIONS = re.compile(
    r"\b(?:never|no longer|not any ?more|without|stop(?:ped)?|avoid|cannot|forbid(?:den)?|drop(?:ped)?|(?:do|does"
    r"|did|is"
    r"|are|was|were|has|have|must|should|will|can) not|disabl(?:e|ed)|nicht|nie(?:mals)?|keine?[nrs]?|nunca|jamás"
    r"|jamais"
    r"|n(?:e |['’])\w+ (?:pas|plus|jamais))\b|n['’]t\b|(?<=, )plus\b",
    _I,
)
REJECTED = re.compile(
    r"\b(instead of|rather than|without|ohne|sin|sans|et pas|plutôt que|no longer|not any ?more|don['’]?t use"
    r"|do not use|not|no|never|stop using"
    r"|(?:away|(?:switch|mov|migrat)\w*\b[^.,;]{0,25}?) from|n(?:e |['’])\w+ (?:plus|pas|jamais)|(?:we"
    r"|i) (?:have )?left|drop(?:ped|ping)?|replac(?:e|ed|ing)"
    r"|remov(?:e|ed|ing)|got rid of|retired?|nicht(?: mehr)?|keine?[nrs]?|nie(?:mals)?|statt|nunca|ya no"
    r"|en (?:vez|lugar) de|pas de|jamais|plus de|(?<=, )plus)\s+(?:only\s|nur\s)?((?:[\w+#./-]+\s?){1,5})",
    _I,
)
"""What is turned down, and what by."""
NO_MORE = re.compile(r"\b(?:any ?more|no longer|nichts? mehr|keine? \w+ mehr|ya no|ne \w+ plus|n['’]\w+ plus)\b", _I)
"""Something was so, and is not."""
ENDED = re.compile(
    r"((?:[\w+#./-]+\s){1,3})(?:is|are|was|were|has been|have been|ist|sind|wurden?|está|est|sont) (?:now |jetzt )?"
    r"(?:gone|dead|retired|removed|closed|dropped|deprecated|given up|shut down|switched off|turned off|decommissioned"
    r"|abgeschaltet|abgelöst|stillgelegt|aufgegeben|eliminad[oa]s?|supprimée?s?)\b",
    _I,
)
"""What is there no longer, and the words for that."""
BECAUSE = re.compile(r"\b(?:because|since|so that|weil|denn|damit|porque|ya que|parce que|car)\b[^,;]*", _I)
"""The reason of a sentence."""
CONSEQUENCES = re.compile(
    r"(?:\b(?:or|otherwise|else|so that|because|since|if|when|until|unless|oder|sonst|weil|wenn|porque|si|sinon)"
    r"|(?<!^)\b(?:before|after|while|bevor|nachdem|antes de|avant de))\b.*",
    _I,
)
"""The rest of a sentence behind what it says in the main."""
MOVES = re.compile(
    r"\b(?:now|from now on|since|moved|changed|raised|lowered|went (?:up|down)|switched|migrated|replaced|effective"
    r"|jetzt|ab sofort|ab jetzt|seit|neuerdings|künftig|umgestellt|ahora|desde|a partir de|pas[óa]\w*|cambi\w+"
    r"|maintenant|désormais|depuis|pass[ée]e?s?|à partir)\b",
    _I,
)
"""Something is otherwise since a time."""
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
    r"|est|sont|use|set|retry|require|limit|target",
    _I,
)
"""Words behind which a sentence says something of what it is about."""
DECLARES = re.compile(
    r"\b(?:is|are|was|has|have|comes?|lives?|needs?|starts?|works?|must|kann|puede|peut|we|our|ist|sind|wir"
    r"|unsere?|es|está|son|nuestr[oa]|nous|notre"
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
    r"((?:[\w+#./-]+\s+){1,4}?)(?:(?:is|are|was|were|(?:has|have) been|got|ist|sind|wurden?|est|sont|a été|fue"
    r"|está)\s+"
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
    r"\b(?:no longer|not any ?more|any ?more|stopped|stop|gave up|nichts? mehr|niemand mehr"
    r"|ya no|nada más|dejamos de|plus rien|n(?:e |['’])\w+ plus)\b",
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
    r" (?:the|an?|this|that|these|those|all|it|me|us|them|my|our|every|each|any|some|den|die|das|eine?n?|le|la|les"
    r"|une?"
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
OURS = re.compile(r"\b(?:we|let['’]?s|i|our|wir|ich|unsere?|nous|on|je|nosotr[oa]s|hemos|vamos|\w+amos)\b", _I)
"""A sentence in which a person speaks of what we do."""
PAST = re.compile(
    r"^(?:we|wir|nous|on) (?!decided|agreed)(?:\w+ed|lost|had|were|got|saw|found|did|hatten|haben|avons)\b", _I
)
"""A sentence that tells what happened."""
