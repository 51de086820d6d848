// What the first view needs is asked for while its scripts are still on their way: api.js takes up these answers.
(() => {
  const wanted = ["/api/state", ...(/^(#\/?(gallery)?)?$/.test(location.hash) ? ["/api/images"] : [])];
  window.early = new Map(wanted.map((url) => [url, fetch(url).catch(() => null)]));
})();
