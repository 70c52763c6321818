// Random texts of many scripts, the same for the same seed.

// Assigned since Unicode 15.0, which is what Myriad knows; and what regular expression engines see differently.
const newer = new RegExp("[" + String.raw`\u088F\u0897\u0C5C\u0CDC\u1ACF-\u1ADD\u1AE0-\u1AEB\u1B4E-\u1B4F\u1B7F\u1C89-\u1C8A\u20C1\u2427-\u2429` +
  String.raw`\u2B96\u2FFC-\u2FFF\u31E4-\u31E5\u31EF\uA7CB-\uA7CF\uA7D2\uA7D4\uA7DA-\uA7DC\uA7F1\uFBC3-\uFBD2` +
  String.raw`\uFD90-\uFD91\uFDC8-\uFDCE\u{105C0}-\u{105F3}\u{10940}-\u{10959}\u{10D40}-\u{10D65}\u{10D69}-\u{10D85}` +
  String.raw`\u{10D8E}-\u{10D8F}\u{10EC2}-\u{10EC7}\u{10ED0}-\u{10ED8}\u{10EFA}-\u{10EFC}\u{11380}-\u{11389}\u{1138B}` +
  String.raw`\u{1138E}\u{11390}-\u{113B5}\u{113B7}-\u{113C0}\u{113C2}\u{113C5}\u{113C7}-\u{113CA}\u{113CC}-\u{113D5}` +
  String.raw`\u{113D7}-\u{113D8}\u{113E1}-\u{113E2}\u{116D0}-\u{116E3}\u{11B60}-\u{11B67}\u{11BC0}-\u{11BE1}` +
  String.raw`\u{11BF0}-\u{11BF9}\u{11DB0}-\u{11DDB}\u{11DE0}-\u{11DE9}\u{11F5A}\u{13460}-\u{143FA}\u{16100}-\u{16139}` +
  String.raw`\u{16D40}-\u{16D79}\u{16EA0}-\u{16EB8}\u{16EBB}-\u{16ED3}\u{16FF2}-\u{16FF6}\u{187F8}-\u{187FF}\u{18CFF}` +
  String.raw`\u{18D09}-\u{18D1E}\u{18D80}-\u{18DF2}\u{1CC00}-\u{1CCFC}\u{1CD00}-\u{1CEB3}\u{1CEBA}-\u{1CED0}` +
  String.raw`\u{1CEE0}-\u{1CEF0}\u{1E5D0}-\u{1E5FA}\u{1E5FF}\u{1E6C0}-\u{1E6DE}\u{1E6E0}-\u{1E6F5}\u{1E6FE}-\u{1E6FF}` +
  String.raw`\u{1F6D8}\u{1F777}-\u{1F77A}\u{1F8B2}-\u{1F8BB}\u{1F8C0}-\u{1F8C1}\u{1F8D0}-\u{1F8D8}\u{1FA54}-\u{1FA57}` +
  String.raw`\u{1FA89}-\u{1FA8A}\u{1FA8E}-\u{1FA8F}\u{1FABE}\u{1FAC6}\u{1FAC8}\u{1FACD}\u{1FADC}\u{1FADF}` +
  String.raw`\u{1FAE9}-\u{1FAEA}\u{1FAEF}\u{1FBCB}-\u{1FBEF}\u{1FBFA}\u{2B73A}-\u{2B73F}\u{2CEA2}-\u{2CEAD}` +
  String.raw`\u{2EBF0}-\u{2EE5D}\u{323B0}-\u{33479}` + "]", "u");
const unsettled = /[\p{Cn}\u0085\u180E\uFEFF\u017F\u212A]/u;

const words = ["the", "Hello", "WORLD", "don't", "I'm", "they'll", "We've", "SHE'S", "it'D", "camelCase", "snake_case", "x2y",
  "Straße", "naïve", "café", "ÅNGSTRÖM", "привет", "Мир", "γειά", "שלום", "مرحبا", "नमस्ते", "สวัสดี", "ไทย", "안녕하세요", "日本語",
  "漢字かな", "カタカナー", "中文分词", "你好世界", "㐀㐁", "ﬁle", "ǅungla", "𝒜𝓑", "𐐷𐐸", "return", "def", "int main()", "https://a.b/c?d=e&f=1",
  "1234567890", "3.14159", "١٢٣", "Ⅷ", "½", "²³", "e\u0301a\u0308", "A\u030A", "\u1112\u1161\u11ab", "\u0928\u093c", "q\u0307\u0323"];
const marks = [..."!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~¡§«»¿–—…‘’“”€£©®™×÷→≤∞、。「」！？，：～・゠"];
const spaces = [" ", " ", " ", " ", "  ", "   ", "        ", "\n", "\n\n", "\r\n", "\t", "\t\t", " \n", "\n ", "\u00A0", "\u3000", "\u2003", "\u2028", "\u000B", "\u000C", "\u001C"];
const odd = ["😀", "👩‍👩‍👧‍👦", "🏃🏽‍♂️", "🇩🇪", "\u200B", "\u200D", "\uFE0F", "\u0301", "\u20DD", "\u0000", "\u0007", "\u007F", "\uE000", "\uFFFD", "\u{10FFFF}",
  "\u00AD", "\u0600", "\u2581", "<", "|", ">", "<|", "|>", "'", "''", "'s", "'S", "'ll", "/", "//", "/*"];

export function textGenerator(seed) {
  let state = seed >>> 0 || 1;
  const below = (n) => {  // mulberry32
    state = (state + 0x6D2B79F5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) % n;
  };
  const pick = (list) => list[below(list.length)];
  const character = () => {
    for (;;) {
      const range = pick([0x80, 0x250, 0x3100, 0xD800, 0x20000, 0x110000]);
      const code = below(range);
      if (code >= 0xD800 && code < 0xE000) continue;
      const c = String.fromCodePoint(code);
      if (!unsettled.test(c) && !newer.test(c)) return c;
    }
  };
  const atom = (kind) => {
    if (kind < 40) return pick(words);
    if (kind < 60) return pick(spaces);
    if (kind < 72) return pick(marks);
    if (kind < 80) return String(below(10 ** (1 + below(9))));
    if (kind < 88) return pick(odd);
    if (kind < 94) return String.fromCharCode(32 + below(95));
    return character();
  };
  return () => {
    const few = below(3) === 0 ? Array.from({ length: 2 + below(5) }, () => below(100)) : null;
    let text = "";
    for (let n = 1 + below(below(10) === 0 ? 120 : 24); n > 0; --n) {
      const piece = atom(few ? pick(few) : below(100));
      text += below(30) === 0 ? piece.repeat(1 + below(12)) : piece;
      if (few === null && below(2) === 0) text += " ";
    }
    return text;
  };
}

// node texts.mjs COUNT SEED: a JSON string a line.
if (process.argv[1]?.endsWith("texts.mjs")) {
  const text = textGenerator(Number(process.argv[3]));
  for (let n = Number(process.argv[2]); n > 0; --n) console.log(JSON.stringify(text()));
}
