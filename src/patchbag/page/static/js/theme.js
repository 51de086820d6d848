// Before the first paint: the colours that were chosen here, else those of the system.
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("patchbag-theme");
  } catch {
    // storage may be switched off; the system's colours serve
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
