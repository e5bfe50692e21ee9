"""Words that carry no meaning alone."""

STOP_WORDS = frozenset(
    """a about after all also am an and any are as at be because been before being but by can could did do does doing
    for from get got had has have having he her him his how i if in into is it its just let me my no not of on or our
    out over she should so some such than that the their them then there these they this those to too up us was we
    were what when where which while who whom whose why will with would you your""".split()
)
"""English function words: they match everywhere, cost time, and on the benchmarks cost recall."""

STOP_WORDS_OF = {
    "german": frozenset(
        """ab aber alle allem allen aller alles als also am an auch auf aus bei beim bin bis da dabei dadurch dafür
        damit danach dann daran darauf daraus darf darin das dass davon dazu dein deine dem den denn der deren des
        dessen die dies diese diesem diesen dieser dieses doch dort du durch ein eine einem einen einer eines er es etwa
        etwas euch euer für gab gegen gibt habe haben hat hatte hatten hier hin ich ihm ihn ihnen ihr ihre ihrem ihren
        ihrer im immer in ins ist ja jede jedem jeden jeder jedes jetzt kann kannst kein keine keinem keinen keiner
        können könnte man mehr mein meine mich mir mit muss müssen nach nicht nichts noch nun nur ob oder ohne schon
        sehr sein seine seinem seinen seiner seit sich sie sind so soll sollen sollte sondern sonst statt über um und
        uns unser unsere unserem unseren unserer unter vom von vor wann war waren warum was weil welche welchem
        welchen welcher welches wenn wer werden weshalb wie wieder wieso will wir wird wo wofür wohin woran worauf wurde
        wurden während zu zum zur zwar zwischen""".split()
    ),
    "french": frozenset(
        """afin ai ainsi alors après as au aucun aucune aussi autre autres aux avait avaient avant avec avez avoir avons
        c ce cela celle celles celui ces cet cette ceux chaque chez comme comment d dans de depuis des dès deux dit doit
        donc dont du elle elles en encore entre es est et étaient était été être eu eux fait faire faut font il ils j je
        jusqu l la là laquelle le lequel les leur leurs lors lorsque lui m ma mais me même mes moi moins mon n ne ni nos
        notre nous on ont ou où par parce pas peu peut peuvent plus pour pourquoi près puis qu quand que quel quelle
        quelles quels qui quoi s sa sans se sera ses si sinon son sont sous sur t ta tant te tes toi ton tous tout toute
        toutes très tu un une vers voir vos votre vous y""".split()
    ),
    "spanish": frozenset(
        """a al algo algún alguna algunas alguno algunos ante antes aquel aquella aquí así aun aún aunque bajo bien cada
        casi como cómo con contra cuál cuáles cual cuales cuando cuándo cuánta cuántas cuánto cuántos de del desde donde
        dónde dos durante e el él ella ellas ello ellos en entre era eran es esa esas ese eso esos esta está están
        estaba estaban estas este esto estos fue fueron ha haber había han hasta hay he la las le les lo los más me mi
        mientras mis misma mismo muy nada ni no nos nosotros nuestra nuestras nuestro nuestros o otra otras otro otros
        para pero poco por porque puede pueden pues que qué quién quien se sea ser será si sí sido siempre sin sino
        sobre solo sólo son su sus también tan tanto te tenemos tener tenía ti tiene tienen toda todas todo todos tras
        tu tus un una unas uno unos y ya yo""".split()
    ),
}
"""Language -> its function words, by the names of Snowball's stemmers."""
