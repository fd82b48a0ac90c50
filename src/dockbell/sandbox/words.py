"""The vocabulary of the sandbox: people, places, goods; in the scripts that real records are written in."""

# ruff: noqa: E501, RUF001  # tables read by rows; typographic signs are what real records hold

from __future__ import annotations

from typing import Final, NamedTuple

FIRST_NAMES: Final = (
    "Aisha", "Ángel", "Anneke", "Björn", "Chloé", "Dmitri", "Elif", "Emma", "Fionnuala", "Giórgos", "Håkon", "Hanako",
    "Ines", "İbrahim", "Jadwiga", "João", "Kwame", "Łukasz", "Marta", "Maximiliane", "Michał", "Nguyễn", "Noah",
    "Olivia", "Pekka", "Priya", "Renée", "Siobhán", "Søren", "Tomáš", "Umar", "Vera", "Zoë", "Γιώργος", "Ольга", "美咲",
)  # fmt: skip
LAST_NAMES: Final = (
    "Adeyemi", "Åkesson", "Andersson", "Baumgärtner", "Bianchi", "Çelik", "de Vries", "Dvořák", "Fernández", "García",
    "Grönroos", "Hansen", "Horváth", "Jansen", "Kowalczyk", "Łęcki", "Lefèvre", "MacDonald", "Müller", "Nakamura",
    "O’Brien", "Öztürk", "Papadópoulos", "Pérez-Gómez", "Ribeiro", "Rossi", "Schäfer", "Smith", "Šimek", "Tanaka",
    "van den Berg", "Văcărescu", "Wójcik", "Иванова", "佐藤",
)  # fmt: skip
COMPANIES: Final = (
    "Alpenglück Outdoor GmbH", "Boulangerie Moreau SARL", "Casa Ibérica, S.L.", "Drogheda Tools Ltd", "Elektro Šťastný",
    "Fjordlys AS", "Græsk & Søn ApS", "Hôtel des Étoiles", "Jänes OÜ", "Kuchnia Babuni Sp. z o.o.", "Müller & Söhne KG",
    "Nordic “Light” AB", "O’Reilly’s Pharmacy", "Petit Café ☕", "株式会社サクラ商事",
)  # fmt: skip


class City(NamedTuple):
    """A place goods are sent to or from; ``postal`` has a digit for each #."""

    name: str
    region: str | None
    country: str
    postal: str
    streets: tuple[str, ...]
    phone: str
    zone: str
    latitude: float
    longitude: float


CITIES: Final = (
    City("Rotterdam", "Zuid-Holland", "NL", "#### KD", ("Maasvlakteweg", "Coolsingel"), "+31 10", "Europe/Amsterdam", 51.9244, 4.4777),
    City("München", "Bayern", "DE", "80###", ("Hauptstraße", "Sendlinger Straße"), "+49 89", "Europe/Berlin", 48.1374, 11.5755),
    City("Łódź", "łódzkie", "PL", "9#-###", ("ul. Piotrkowska", "al. Kościuszki"), "+48 42", "Europe/Warsaw", 51.7592, 19.456),
    City("Lyon", "Auvergne-Rhône-Alpes", "FR", "6900#", ("Rue de l’Épée", "Quai Saint-Antoine"), "+33 4", "Europe/Paris", 45.764, 4.8357),
    City("A Coruña", "Galicia", "ES", "150##", ("Rúa Real", "Avda. de la Marina"), "+34 981", "Europe/Madrid", 43.3623, -8.4115),
    City("Århus", None, "DK", "8###", ("Søndergade", "Åboulevarden"), "+45 86", "Europe/Copenhagen", 56.1629, 10.2039),
    City("Göteborg", "Västra Götaland", "SE", "41# ##", ("Kungsportsavenyn", "Första Långgatan"), "+46 31", "Europe/Stockholm", 57.7089, 11.9746),
    City("Reykjavík", None, "IS", "10#", ("Laugavegur", "Skólavörðustígur"), "+354 5", "Atlantic/Reykjavik", 64.1466, -21.9426),
    City("Brno", "Jihomoravský kraj", "CZ", "6## ##", ("Náměstí Svobody", "Veveří"), "+420 5", "Europe/Prague", 49.1951, 16.6068),
    City("İzmir", "Ege", "TR", "35###", ("Atatürk Cd.", "Şehit Fethi Bey Cd."), "+90 232", "Europe/Istanbul", 38.4237, 27.1428),
    City("Θεσσαλονίκη", "Μακεδονία", "GR", "54# ##", ("Εγνατία", "Τσιμισκή"), "+30 231", "Europe/Athens", 40.6401, 22.9444),
    City("Belfast", "Northern Ireland", "GB", "BT# #AB", ("Donegall Quay", "Queen’s Road"), "+44 28", "Europe/London", 54.5973, -5.9301),
    City("Montréal", "Québec", "CA", "H#X #Y#", ("rue Sainte-Catherine O", "boul. Saint-Laurent"), "+1 514", "America/Toronto", 45.5019, -73.5674),
    City("São Paulo", "SP", "BR", "0####-###", ("Av. Paulista", "Rua Augusta"), "+55 11", "America/Sao_Paulo", -23.5505, -46.6333),
    City("名古屋市", "愛知県", "JP", "46#-####", ("中区栄", "熱田区神宮"), "+81 52", "Asia/Tokyo", 35.1815, 136.9066),
)  # fmt: skip


class Product(NamedTuple):
    """A kind of goods; ``grams`` and ``cents`` are typical for one piece."""

    code: str
    english: str
    german: str
    french: str
    polish: str
    japanese: str
    category: tuple[str, ...]
    grams: int
    cents: int
    hs_code: str
    shelf_life: int | None


PRODUCTS: Final = (
    Product("LMP", "Desk lamp", "Schreibtischlampe", "Lampe de bureau", "Lampka biurkowa", "デスクランプ", ("Home", "Lighting"), 1400, 3990, "9405.21", None),
    Product("MUG", "Enamel mug", "Emaillebecher", "Tasse émaillée", "Kubek emaliowany", "ほうろうマグ", ("Home", "Kitchen"), 310, 1250, "7323.94", None),
    Product("CFE", "Coffee beans 1 kg", "Kaffeebohnen 1 kg", "Café en grains 1 kg", "Kawa ziarnista 1 kg", "コーヒー豆 1kg", ("Food", "Coffee"), 1040, 1890, "0901.21", 365),
    Product("HNY", "Acacia honey", "Akazienhonig", "Miel d’acacia", "Miód akacjowy", "アカシア蜂蜜", ("Food", "Spreads"), 620, 890, "0409.00", 720),
    Product("CRM", "Hand cream", "Handcreme", "Crème pour les mains", "Krem do rąk", "ハンドクリーム", ("Care", "Skin"), 95, 640, "3304.99", 900),
    Product("JKT", "Rain jacket", "Regenjacke", "Veste de pluie", "Kurtka przeciwdeszczowa", "レインジャケット", ("Outdoor", "Clothing"), 540, 11900, "6201.40", None),
    Product("TNT", "Tent, 2 persons", "Zelt, 2 Personen", "Tente 2 places", "Namiot 2-osobowy", "テント 2人用", ("Outdoor", "Camping"), 3100, 24900, "6306.22", None),
    Product("BTL", "Bottle 0.75 l", "Trinkflasche 0,75 l", "Gourde 0,75 l", "Bidon 0,75 l", "水筒 0.75L", ("Outdoor", "Camping"), 280, 2490, "9617.00", None),
    Product("DRL", "Cordless drill", "Akkubohrschrauber", "Perceuse sans fil", "Wiertarko-wkrętarka", "電動ドリル", ("Tools", "Power"), 1850, 15900, "8467.21", None),
    Product("SCR", "Screws 4×40, 500 pcs", "Schrauben 4×40, 500 St.", "Vis 4×40, 500 pcs", "Wkręty 4×40, 500 szt.", "ねじ 4×40 500本", ("Tools", "Fixings"), 2200, 1790, "7318.14", None),
    Product("GLV", "Work gloves", "Arbeitshandschuhe", "Gants de travail", "Rękawice robocze", "作業用手袋", ("Tools", "Safety"), 120, 790, "6116.10", None),
    Product("BAT", "Battery pack 18 V", "Akku 18 V", "Batterie 18 V", "Akumulator 18 V", "バッテリー 18V", ("Tools", "Power"), 640, 8900, "8507.60", None),
    Product("NTB", "Notebook A5", "Notizbuch A5", "Carnet A5", "Notes A5", "ノート A5", ("Office", "Paper"), 260, 980, "4820.10", None),
    Product("PEN", "Fountain pen", "Füllfederhalter", "Stylo-plume", "Pióro wieczne", "万年筆", ("Office", "Writing"), 35, 4500, "9608.30", None),
    Product("CHR", "Folding chair", "Klappstuhl", "Chaise pliante", "Krzesło składane", "折りたたみ椅子", ("Home", "Furniture"), 4300, 5490, "9401.79", None),
    Product("PZL", "Puzzle, 1000 pieces", "Puzzle, 1000 Teile", "Puzzle 1000 pièces", "Puzzle 1000 elementów", "パズル 1000ピース", ("Toys", "Games"), 810, 1699, "9503.00", None),
    Product("VIT", "Vitamin D drops", "Vitamin-D-Tropfen", "Vitamine D en gouttes", "Witamina D w kroplach", "ビタミンD", ("Care", "Health"), 60, 1190, "3004.50", 540),
    Product("PLN", "Potted fern", "Topffarn", "Fougère en pot", "Paproć doniczkowa", "シダの鉢植え", ("Garden", "Plants"), 1600, 1490, "0602.90", 30),
)  # fmt: skip
COLOURS: Final = (
    ("BLK", "black", "schwarz"), ("WHT", "white", "weiß"), ("GRN", "green", "grün"), ("BLU", "blue", "blau"),
    ("RED", "red", "rot"), ("YEL", "yellow", "gelb"), ("NAT", "natural", "natur"), ("SLV", "silver", "silber"),
)  # fmt: skip
BRANDS: Final = ("Ærø", "Brückner", "Côte & Cie", "Hikari 光", "Lumière", "Noord", "Ostrów", "Tramontana", "Žalia")
MATERIALS: Final = ("aluminium", "bamboo", "canvas", "glass", "organic cotton", "recycled PET", "stainless steel", None)


class Carrier(NamedTuple):
    """Who carries packages; ``tracking`` has a digit for each #."""

    code: str
    services: tuple[str, ...]
    tracking: str


CARRIERS: Final = (
    Carrier("DHL", ("Paket", "Express Worldwide"), "JJD############"),
    Carrier("UPS", ("Standard", "Express Saver"), "1Z999AA1########"),
    Carrier("DPD", ("Classic", "Predict"), "0550##########"),
    Carrier("PostNL", ("Pakket", "Brievenbuspakje"), "3SDB#########"),
    Carrier("Chronopost", ("Chrono 13", "Chrono Relais"), "XY#########FR"),
    Carrier("GLS", ("EuroBusiness",), "6###########"),
)
NOTES: Final = (
    "Bitte beim Nachbarn abgeben – Müller, 2. OG.", "Laisser devant la porte, merci !", "Ring twice; the dog is friendly.",
    "Proszę dzwonić przed dostawą.", "不在時は宅配ボックスへ", "Pallet truck needed, no ramp.", "Gift 🎁 – no invoice in the box",
)  # fmt: skip
SHIPMENT_TAGS: Final = ("b2b", "fragile", "gift", "express", "export", "heavy", "dropship", "click & collect")
ITEM_TAGS: Final = ("bestseller", "new", "outlet", "seasonal", "vegan", "FSC®", "refill", "bulky")
SCANS: Final = (
    ("HUB_IN", "Arrived at hub"), ("HUB_OUT", "Departed from hub"), ("CUSTOMS", "Held at customs"),
    ("DELAY", "Delayed by weather"), ("OUT", "Out for delivery"), ("MISSED", "Recipient not at home"),
)  # fmt: skip
