// The pages work without this: it adds a filter.
(() => {
  const form = document.querySelector('.filter');
  const search = form.querySelector('input');
  const output = form.querySelector('output');
  // A scenario of a table has a second row, with how it changed.
  const entries = [...document.querySelectorAll('main tr[data-f], main article, main section[data-f], main .ch tbody tr:not(.how), main .fails li')];
  const parts = entries.map(e => e.nextElementSibling?.matches('.how') ? [e, e.nextElementSibling] : [e]);
  const text = parts.map(p => p.map(e => e.textContent).join(' ').toLowerCase());

  form.hidden = false;
  form.addEventListener('submit', e => e.preventDefault());
  form.addEventListener('input', () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    parts.forEach((part, i) => {
      const hit = words.every(w => text[i].includes(w));
      part.forEach(e => { e.hidden = !hit; });
      if (hit) shown++;
    });
    output.textContent = shown + ' of ' + entries.length;
  });
  document.addEventListener('keydown', e => {
    if (e.key === '/' && document.activeElement !== search) {
      e.preventDefault();
      search.focus();
    }
  });
})();
