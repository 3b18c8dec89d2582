// Sorting, filtering and unfolding of the tables. Without it the page says the same, and nothing is folded.
(() => {
  "use strict";
  const FILTER_FROM = 6; // fewer rows are seen at once

  const make = (name, options = {}, ...inside) => {
    const made = Object.assign(document.createElement(name), options);
    made.append(...inside);
    return made;
  };

  /** A record is what moves as one: a row, or a group of rows where one of them unfolds. */
  const recordsOf = (table) => {
    const groups = [...table.querySelectorAll("tbody.record")];
    return groups.length ? groups : [...table.querySelectorAll("tbody.rows > tr")];
  };

  const cellOf = (record, column) => (record.matches("tr") ? record : record.rows[0]).cells[column];
  const textOf = (cell) => cell.dataset.sort ?? cell.textContent.trim();

  const compare = (one, other, isNumber) => {
    if (!isNumber) return one.localeCompare(other, "en", { numeric: true });
    const [left, right] = [one, other].map((text) => (text === "" ? -Infinity : Number(text)));
    return left === right ? 0 : left < right ? -1 : 1;
  };

  const makeSortable = (table) => {
    const headings = [...table.tHead.rows[0].cells];
    table.classList.add("sortable");
    headings.forEach((heading, column) => {
      if (heading.classList.contains("still")) return;
      const button = make("button", { type: "button", className: "sort" }, ...heading.childNodes);
      heading.append(button);
      button.addEventListener("click", () => {
        const isUp = heading.getAttribute("aria-sort") !== "ascending";
        headings.forEach((each) => each.removeAttribute("aria-sort"));
        heading.setAttribute("aria-sort", isUp ? "ascending" : "descending");
        const isNumber = heading.classList.contains("num") || "number" in heading.dataset;
        const records = recordsOf(table);
        const parent = records[0].parentNode;
        records
          .map((record) => [textOf(cellOf(record, column)), record])
          .sort(([one], [other]) => (isUp ? 1 : -1) * compare(one, other, isNumber))
          .forEach(([, record]) => parent.append(record));
      });
    });
  };

  const makeFilter = (box, table, records) => {
    const noun = box.dataset.noun || "rows";
    const input = make("input", { type: "search", autocomplete: "off", spellcheck: false });
    const shown = make("output");
    shown.setAttribute("aria-live", "polite");
    const tools = make("div", { className: "tools" }, make("label", {}, "Filter", input));
    const facets = [...table.tHead.rows[0].cells].flatMap((heading, column) => {
      if (!("facet" in heading.dataset)) return [];
      const values = [...new Set(records.map((record) => textOf(cellOf(record, column))))].sort();
      if (values.length < 2) return [];
      const select = make("select", {}, make("option", { value: "" }, "all"));
      values.forEach((value) => select.append(make("option", { value }, value)));
      tools.append(make("label", { className: "facet" }, heading.textContent.trim(), select));
      return [{ select, column }];
    });
    const texts = new Map(records.map((record) => [record, record.textContent.toLowerCase()]));
    const filter = () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let count = 0;
      records.forEach((record) => {
        const isShown =
          words.every((word) => texts.get(record).includes(word)) &&
          facets.every(({ select, column }) => !select.value || textOf(cellOf(record, column)) === select.value);
        record.hidden = !isShown;
        count += isShown;
      });
      shown.textContent = count === records.length ? `${count} ${noun}` : `${count} of ${records.length} ${noun}`;
    };
    tools.addEventListener("input", filter);
    tools.append(shown);
    box.prepend(tools);
    filter();
    return tools;
  };

  const makeFolding = (table) => {
    const buttons = recordsOf(table).flatMap((record) => {
      const [first, more] = record.rows || [];
      const place = first && first.querySelector("[data-open]");
      if (!more || !place) return [];
      const button = make("button", { type: "button", className: "open" }, ...place.childNodes);
      button.setAttribute("aria-controls", more.id);
      place.append(button);
      button.fold = (isOpen) => {
        button.setAttribute("aria-expanded", String(isOpen));
        more.hidden = !isOpen;
      };
      button.addEventListener("click", () => button.fold(button.getAttribute("aria-expanded") !== "true"));
      button.fold(false);
      return [button];
    });
    return buttons;
  };

  const makeUnfoldAll = (tools, buttons) => {
    const all = make("button", { type: "button", className: "plain" }, "Unfold all");
    all.addEventListener("click", () => {
      const isOpen = all.textContent === "Unfold all";
      buttons.forEach((button) => button.fold(isOpen));
      all.textContent = isOpen ? "Fold all" : "Unfold all";
    });
    tools.insertBefore(all, tools.querySelector("output"));
  };

  const copy = async (text, from) => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const range = document.createRange(); // a file may not use the clipboard: it is selected instead
      range.selectNodeContents(from);
      const selection = window.getSelection();
      selection.removeAllRanges();
      selection.addRange(range);
      return document.execCommand("copy");
    }
    return true;
  };

  const makeCopyable = (command) => {
    const code = command.querySelector("code");
    const button = make("button", { type: "button", className: "plain" }, "Copy");
    button.setAttribute("aria-label", `Copy: ${code.textContent}`);
    button.addEventListener("click", async () => {
      button.textContent = (await copy(code.textContent, code)) ? "Copied" : "Selected";
      setTimeout(() => (button.textContent = "Copy"), 1500);
    });
    command.append(button);
  };

  /** A link to a record unfolds it. */
  const openLinked = () => {
    const record = location.hash && document.getElementById(location.hash.slice(1));
    const button = record && record.matches("tbody.record") && record.querySelector(".open");
    if (button) {
      button.fold(true);
      record.scrollIntoView();
    }
  };

  document.querySelectorAll(".table").forEach((box) => {
    const table = box.querySelector("table");
    const records = recordsOf(table);
    if (records.length > 2) makeSortable(table);
    const buttons = makeFolding(table);
    if (records.length >= FILTER_FROM || (buttons.length && records.length > 1)) {
      const tools = makeFilter(box, table, records);
      if (buttons.length) makeUnfoldAll(tools, buttons);
    }
  });
  document.querySelectorAll(".command").forEach(makeCopyable);
  window.addEventListener("hashchange", openLinked);
  openLinked();
})();
