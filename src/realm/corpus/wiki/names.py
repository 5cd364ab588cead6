"""What MediaWikis call things in their languages: namespaces, redirects, disambiguation, lists, and closing sections without prose.

A dump's own namespace names come on top of these; the tables serve dumps without them, and pages that use the English or an older name.
All names are lower case with spaces. Tables, not rules: what is not here is kept.
"""

import re
from collections.abc import Mapping


def name_set(text: str) -> frozenset[str]:
    """Names apart by bars and line ends."""
    return frozenset(name.strip() for line in text.split("\n") for name in line.split("|") if name.strip())


FILE = name_set(
    """file|image|media|datei|bild|fichier|archivo|imagen|ficheiro|imagem|arquivo|immagine|bestand|afbeelding|plik
    grafika|fil|billede|tiedosto|kuva|soubor|fájl|kép|fișier|imagine|файл|изображение|картинка|зображення|датотека
    слика|выява|αρχείο|εικόνα|ملف|صورة|وسائط|پرونده|قובץ|קובץ|תמונה|ファイル|画像|파일|그림|文件|檔案|档案|图像
    圖像|ไฟล์|ภาพ|tập tin|hình|berkas|gambar|dosya|resim|attēls|fails|vaizdas|pilt|fitxer|imatge|fitxategi|skrá
    mynd|चित्र|সূত্র|படிமம்|เสียง|slika|datoteka|súbor|фото"""
)
CATEGORY = name_set(
    """category|kategorie|catégorie|categoría|categoria|categorie|kategoria|kategori|luokka|kategória|kategorija
    категория|категорія|категорија|катэгорыя|κατηγορία|تصنيف|رده|קטגוריה|カテゴリ|분류|分类|分類|หมวดหมู่|thể loại
    kategoreja|kategooria|flokkur|श्रेणी|বিষয়শ্রেণী|பகுப்பு|cat"""
)
# Prefixes of other wikis whose links stand in the margin, not in the text. Lower-case codes of two or three letters count too.
_LONG_CODES = name_set(
    "simple|zh-min-nan|zh-yue|zh-classical|be-x-old|be-tarask|roa-rup|roa-tara|map-bms|bat-smg|fiu-vro|cbk-zam|nds-nl|tokipona"
)
_LANGUAGE_CODE = re.compile(r"[a-z]{2,3}(?=:)")
# Short prefixes of sites that are no language.
_SHORT_PREFIXES = name_set("wmf|wp|doi|rfc|mw|bug|cve|iso")

REDIRECT = re.compile(
    r"\s*#\s*(?:redirect|weiterleitung|redirection|redirección|redirecionamento|rinvia|doorverwijzing|patrz|przekieruj|tam|omdirigering"
    r"|ohjaus|uudelleenohjaus|presmeruj|přesměruj|átirányítás|redirecteaza|перенаправление|перенапр|перенаправлення|виклик|пренасочване|преусмери"
    r"|ανακατευθυνση|تحويل|تغییر_?مسیر|הפניה|転送|リダイレクト|넘겨주기|重定向|เปลี่ยนทาง|đổi|alih|yönlendirme|pāradresācija|suunamine)\s*:?\s*\[\[",
    re.IGNORECASE,
)

_DISAMBIGUATION_TEMPLATES = name_set(
    """disambig|disambiguation|disamb|dab|hndis|geodis|place name disambiguation|human name disambiguation
    letter-number combination disambiguation|airport disambiguation|chinese title disambiguation
    genus disambiguation|hospital disambiguation|mathdab|mathematical disambiguation|schooldis
    school disambiguation|species latin name disambiguation|station disambiguation|taxonomy disambiguation
    disambig-cleanup|disambiguation cleanup|letter-number combdisambig|roaddis|shipindex|set index article
    numberdis|given name disambiguation|dbig|begriffsklärung|homonymie|patronymie|toponymie|paronymie
    internationalisation|desambiguación|desambiguacion|desambig|des|desambiguação|disambigua|dp|doorverwijspagina
    ujednoznacznienie|disambig-ru|неоднозначность|многозначность|список однофамильцев|неоднозначність|пояснение
    вишезначна одредница|αποσαφήνιση|توضيح|صفحة توضيح|ابهام‌زدایی|פירושונים|曖昧さ回避|aimai|人名の曖昧さ回避
    地名の曖昧さ回避|동음이의|消歧义|消歧義|消歧义页|消歧義頁|แก้กำกวม|trang định hướng|disambigf|förgrening|gren
    flertydig|peker|pekerside|täsmennyssivu|rozcestník|egyértelmű|egyért|dezambiguizare|dezamb|anlam ayrımı
    nozīmju atdalīšana|zeimeibu škiršona|täpsustus|desambiguació|argipen|aðgreining"""
)
# The beginnings of the categories that hold disambiguation pages.
_DISAMBIGUATION_CATEGORIES = tuple(
    sorted(
        name_set(
            """disambiguation|all disambiguation|all article disambiguation|begriffsklärung|homonymie
            wikipedia:begriffsklärung|wikipédia:homonymie|desambiguación|wikipedia:desambiguación|desambiguação
            disambigua|ujednoznacznienia|неоднозначност|страницы значений|неоднозначні|пояснителни страници
            صفحات توضيح|曖昧さ回避|동음이의|消歧义|消歧義|förgreningssidor|zeimeibu škiršona|nozīmju atdalīšana"""
        )
    )
)
_DISAMBIGUATION_TITLE = re.compile(
    r"\((?:disambiguation|begriffsklärung|homonymie|desambiguación|desambiguação|disambigua|ujednoznacznienie|значения|значення|пояснение|توضيح"
    r"|曖昧さ回避|동음이의|消歧义|消歧義|doorverwijspagina|olika betydelser|täsmennyssivu|rozcestník|zeimeibu škiršona)\)$",
    re.IGNORECASE,
)
_LIST_TITLE = re.compile(
    r"(?:lists? of|listes? (?:de|des|du|d['’])|liste? (?:der|von|des|deutscher)|lista (?:de|di|dei|degli|delle)|lijst van|lista över"
    r"|liste over|luettelo|список|списък|списак|قائمة|فهرست|danh sách|daftar|saroksts|saraksts|seznam|index of|outline of|timeline of)\b"
    r"|.*(?:一覧|列表|一览表|일람|목록)$",
    re.IGNORECASE,
)
_TEMPLATE_NAME = re.compile(r"\{\{\s*([^|{}\[\]<\n]{1,60})")
_CATEGORY_LINK = re.compile(r"\[\[\s*([^\[\]|:\n]{1,30}):\s*([^\[\]|\n]{1,100})")

CLOSING_SECTIONS = name_set(
    """references|external links|see also|further reading|notes|notes and references|footnotes|bibliography|sources
    citations|works cited|references and notes|notes and citations|general references|external sources
    external link|other websites|related pages|gallery|notelist|einzelnachweise|weblinks|siehe auch|literatur
    quellen|anmerkungen|belege|fußnoten|galerie|bilder|anmerkungen und einzelnachweise|références
    notes et références|liens externes|voir aussi|bibliographie|articles connexes|annexes|sources et références
    note|lien externe|referencias|enlaces externos|véase también|bibliografía|notas|fuentes|notas y referencias
    referências|ligações externas|ver também|bibliografia|altri progetti|collegamenti esterni|voci correlate
    note e riferimenti|bronnen|externe links|zie ook|noten|referenties|literatuur|przypisy|linki zewnętrzne
    zobacz też|uwagi|примечания|ссылки|см. также|литература|источники|примітки|посилання|див. також|література
    джерела|източници|външни препратки|вижте също|бележки|използвана литература|بقية المراجع|المراجع|مراجع
    وصلات خارجية|انظر أيضا|انظر أيضًا|المصادر|مصادر|هوامش|اقرأ أيضا|脚注|関連項目|外部リンク|参考文献|出典|注釈
    参考资料|參考資料|參考文獻|外部链接|外部連結|外部連接|参见|參見|參考|注释|注釋|註釋|相关条目|相關條目|延伸阅读
    参考来源|腳註|각주|같이 보기|외부 링크|참고 문헌|källor|referenser|externa länkar|se även|noter
    eksterne henvisninger|se også|lähteet|aiheesta muualla|reference|externí odkazy|související články|literatura
    dış bağlantılar|kaynakça|ayrıca bakınız|atsauces|ārējās saites|olūti|nūruodis|verī taipoš
    verīs taipoš|nūruodis i olūti|uorejuos nūruodis|teiklavītys|teiklavīta"""
)
_ENGLISH = {"talk": 1, "user": 2, "wikipedia": 4, "file": 6, "image": 6, "mediawiki": 8, "template": 10, "help": 12, "category": 14}
_ENGLISH |= {f"{name} talk": number + 1 for name, number in _ENGLISH.items() if number > 1} | {"portal": 100}


class Namespaces:
    """The file and category namespaces and the other wikis' prefixes of one dump.

    Args:
        numbered: the dump's own namespace names by number; may be empty.
    """

    def __init__(self, numbered: Mapping[int, str] | None = None):
        numbered = numbered or {}
        own = {number: name.lower() for number, name in numbered.items()}
        self.dropped = FILE | CATEGORY | {own.get(-2, "media"), own.get(6, "file"), own.get(14, "category")}
        self.category = CATEGORY | {own.get(14, "category")}
        self.groups_by_comma = own.get(14, "category") == "category"  # an English wiki, which writes 1,234
        self._numbers = {name: number for number, name in own.items() if name}
        self._titles = _ENGLISH | self._numbers

    def drops(self, target: str) -> bool:
        """Whether a link to this target leaves no text: a file, a category, or the same page in another language."""
        if ":" not in target or target.startswith(":"):
            return False
        prefix = target.partition(":")[0].strip().replace("_", " ")
        lower = prefix.lower()
        if lower in self.dropped or lower in _LONG_CODES:
            return True
        return bool(_LANGUAGE_CODE.match(target)) and lower not in _SHORT_PREFIXES and lower not in self._numbers

    def number_of(self, title: str) -> int:
        """The namespace of a page, for dumps older than schema 0.6, which do not say it."""
        prefix, colon, _ = title.partition(":")
        return self._titles.get(prefix.strip().lower(), 0) if colon else 0


def is_redirect(text: str) -> bool:
    """Whether a page's text begins as a redirect does."""
    return REDIRECT.match(text, 0) is not None


def is_disambiguation(title: str, text: str, namespaces: Namespaces) -> bool:
    """By the title's ending, the magic word, a template or a category, in the languages of the tables."""
    if _DISAMBIGUATION_TITLE.search(title) or "__DISAMBIG__" in text:
        return True
    if any(name.replace("_", " ").strip().lower() in _DISAMBIGUATION_TEMPLATES for name in _TEMPLATE_NAME.findall(text)):
        return True
    return any(
        name.strip().lower().startswith(_DISAMBIGUATION_CATEGORIES)
        for prefix, name in _CATEGORY_LINK.findall(text)
        if prefix.strip().lower() in namespaces.category
    )


def is_list(title: str) -> bool:
    """Whether the title says that the article is a list, an index or an outline."""
    return _LIST_TITLE.match(title) is not None
