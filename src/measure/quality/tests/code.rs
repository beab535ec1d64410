use super::*;

fn code(language: &str) -> Vec<Check> {
    vec![Check::Code { language: language.to_owned() }]
}

#[test]
fn brackets_are_told_from_texts_and_comments() {
    let bad = [
        "```rust\nfn main() {\n    println!(\"{}\", 1;\n}\n```",
        "```js\nfunction f() {\n  return [1, 2, 3;\n}\n```",
        "```c\nint main(void) {\n    return 0;\n}}\n```",
        "```json\n{\"a\": [1, 2}\n```",
        "```python\nprint(\"hello\"\n```",
        "```go\nfunc main() {\n\tfmt.Println(\"hi\")\n```",
        "```sql\nSELECT COUNT(* FROM t;\n```",
        "```python\ns = \"\"\"never ends\n```",
        "```rust\nfn main() {}\n",
        "I am sorry, I cannot do that.",
    ];
    let good = [
        "```rust\nfn first<'a>(x: &'a str) -> char { if x == \"(\" { '(' } else { '\\'' } } // )\n```",
        "Here:\n\n```js\nconst smile = \":)\"; // (;\nconst t = `a ${b} [`;\n/* { */\nf({a: [1]});\n```\nDone :)",
        "```c\r\n#include <stdio.h>\r\nint main(void) {\r\n    putchar('}');\r\n    return 0;\r\n}\r\n```\r\n",
        "```bash\ncase \"$1\" in\n  start) run ;;\n  *) echo \"usage: ${#1}\" ;;\nesac\n```",
        "```go\nfunc main() {\n\tfmt.Println(`{`)\n}\n```",
        "```sql\nSELECT name, COUNT(*) -- :(\nFROM t WHERE note = ')' GROUP BY name;\n```",
        "```\n{ \"a\": [1, 2, {\"b\": \"}\"}] }\n```",
        "1. Create it:\n   ```java\n   class A { char c = '{'; }\n   ```\n2. Run it.",
        "```text\n(1] is fine here\n```\n```c\nint x;\n```",
        "fn main() {\n    println!(\"it's\");\n}\n\nThis function prints a text. It's short :)",
        "~~~~cpp\nauto s = \"👩‍👩‍👧 (\"; // 注释（\n~~~~",
    ];
    tells_apart("code", &code(""), &bad, &good);
}

#[test]
fn indentation_of_python() {
    let bad = [
        "```python\ndef f(x):\nreturn x\n```",
        "```python\ndef f(x):\n    if x:\n        return 1\n      return 2\n```",
        "```python\ndef f(x):\n    y = 1\n\treturn y\n```",
        "```py\nx = 1\n    y = 2\n```",
        "```python\nfor i in range(3):\n    # nothing here\nprint(i)\n```",
        "```python\r\nclass A:\r\n    def f(self):\r\n    return 1\r\n```",
        "```javascript\nlet x = 1;\n```",
    ];
    let good = [
        "```python\ndef f(x):\n    \"\"\"Doc:\n\n  odd text (\n    \"\"\"\n    if x:\n        return 1\n    return 2\n```",
        "```python\nx = f(\n    1,\n  2,\n)\nif x: print(x)\n# done:\nprint('a:')  # :\n```",
        "```python\n\tdef f():\n\t\treturn 1\n```",
        "```python\r\ndef f():\r\n    pass\r\n\r\n\r\nf()\r\n```\r\n",
        "Run `pip install x`:\n```bash\npip install x\n```\n```python\nimport x\n```",
        "```python\ntotal = 1 + \\\n        2\nprint(f\"{total:>{10}}\")\n```",
        "```\ndef f():\n    return {\n        'a': [1],\n    }\n```",
        "def f(x):\n    return x\n\nNote that:\nit works.",
        "def f(x):\r\n    return x\r\n\r\nHere, the x) is it.\r\n",
        "```python\n>>> for i in range(2):\n...     print(i)\n0\n1\n```",
        "- Use a loop:\n\n  ```python\n  for i in range(3):\n      print(i)\n  ```",
        "```python\n@cache\nasync def 名字(参数: int) -> str:\n    return '（' * 参数\n```",
    ];
    tells_apart("code", &code("python"), &bad, &good);
}

#[test]
fn a_cut_answer_may_leave_things_open() {
    let cut = "```python\ndef f(x):\n    return g(x, [1,";
    assert!(examine("", cut, false, &code("python")).is_empty());
    assert_eq!(examine("", cut, true, &code("python")).len(), 2);
    let stray = "```python\ndef f(x):\n    return g(x))\n    y = (1,";
    assert_eq!(examine("", stray, false, &code("python")).len(), 1);
    assert!(examine("", "Sure, here is", false, &code("python")).is_empty());
}
