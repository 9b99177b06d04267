// The page works without this: it adds a filter, and opens what a link or a
// mark of the matrix points to.
(() => {
  const form = document.querySelector('.filter');
  const rows = [...document.querySelectorAll('.row')];
  const search = form.querySelector('input[type=search]');
  const boxes = [...form.querySelectorAll('input[type=checkbox]')];
  const level = form.querySelector('select');
  const output = form.querySelector('output');
  const text = rows.map(r => (r.id + ' ' + r.querySelector('.desc').textContent + ' ' + r.querySelector('.about').textContent).toLowerCase());

  const apply = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = boxes.filter(b => b.checked).map(b => b.value);
    let shown = 0;
    rows.forEach((row, i) => {
      const hit = words.every(w => text[i].includes(w)) &&
        (!level.value || row.dataset.l === level.value) &&
        row.dataset.v.split(' ').some(v => wanted.includes(v));
      row.hidden = !hit;
      if (hit) shown++;
    });
    document.querySelectorAll('.folder').forEach(f => { f.hidden = !f.querySelector('.row:not([hidden])'); });
    output.textContent = shown === rows.length ? rows.length + ' scenarios' : shown + ' of ' + rows.length + ' scenarios';
  };

  const reveal = id => {
    const target = document.getElementById(id);
    if (!target) return;
    for (let e = target; e; e = e.parentElement) {
      if (e.tagName === 'DETAILS') e.open = true;
      if (e.hidden) e.hidden = false;
    }
    target.scrollIntoView({ block: 'start' });
    const summary = target.querySelector('summary');
    if (summary) summary.focus({ preventScroll: true });
  };
  const fromHash = () => { if (location.hash) reveal(decodeURIComponent(location.hash.slice(1))); };

  form.hidden = false;
  form.addEventListener('input', apply);
  form.addEventListener('submit', e => e.preventDefault());
  document.querySelector('.matrix').addEventListener('click', e => {
    const mark = e.target.closest('.m[data-p]');
    if (!mark) return;
    e.preventDefault();
    history.replaceState(null, '', '#' + encodeURIComponent(mark.dataset.p));
    reveal(mark.dataset.p);
  });
  document.addEventListener('keydown', e => {
    if (e.key === '/' && !/^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName)) {
      e.preventDefault();
      search.focus();
    }
  });
  window.addEventListener('hashchange', fromHash);
  apply();
  fromHash();
})();
