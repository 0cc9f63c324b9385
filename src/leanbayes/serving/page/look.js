// Light and dark, as in reports; and what the page knows about the model.
const info = JSON.parse(document.getElementById("info").textContent);
const $ = (id) => document.getElementById(id);

(() => {
  const root = document.documentElement;
  const key = "leanbayes-theme";
  const kept = (value) => {
    try {
      if (value === undefined) return localStorage.getItem(key);
      localStorage.setItem(key, value);
    } catch (error) {
      return null; // storage may be forbidden
    }
    return value;
  };
  const before = kept();
  if (before === "dark" || before === "light") root.dataset.theme = before;
  document.querySelector("button.theme").addEventListener("click", () => {
    const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    root.dataset.theme = (root.dataset.theme || system) === "dark" ? "light" : "dark";
    kept(root.dataset.theme);
  });
  const code = document.querySelector("footer pre");
  code.textContent = code.textContent.replace("URL", location.origin);
})();
