// The page works without this: it adds a filter, opens what a link or a mark of the matrix points to, and unpacks what
// a row has to show when it is opened.
(() => {
  const form = document.querySelector('.filter');
  const rows = [...document.querySelectorAll('.row')];
  const search = form.querySelector('input[type=search]');
  const boxes = [...form.querySelectorAll('input[type=checkbox]')];
  const level = form.querySelector('select');
  const output = form.querySelector('output');
  const text = rows.map(r => (r.id + ' ' + r.querySelector('.desc').textContent + ' ' + r.querySelector('.about').textContent).toLowerCase());
  const levels = rows.map(r => r.querySelector('.lv').textContent);

  const apply = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = boxes.filter(b => b.checked).map(b => b.value);
    let shown = 0;
    rows.forEach((row, i) => {
      const hit = words.every(w => text[i].includes(w)) &&
        (!level.value || levels[i] === level.value) &&
        row.dataset.v.split(' ').some(v => wanted.includes(v));
      row.hidden = !hit;
      if (hit) shown++;
    });
    document.querySelectorAll('.folder').forEach(f => { f.hidden = !f.querySelector('.row:not([hidden])'); });
    output.textContent = shown === rows.length ? rows.length + ' scenarios' : shown + ' of ' + rows.length + ' scenarios';
  };

  // The packs follow this script in the file, so that the page is shown before they are read.
  const read = new Promise(done => { document.readyState === 'loading' ? addEventListener('DOMContentLoaded', done) : done(); });
  const packs = [];
  const unpack = async n => {
    await read;
    const packed = atob(document.querySelectorAll('script[type="application/gzip"]')[n - 1].textContent);
    const bytes = Uint8Array.from(packed, c => c.charCodeAt(0));
    const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
    const parts = document.createElement('template');
    parts.innerHTML = await new Response(plain).text();
    for (const part of [...parts.content.children]) {
      const row = document.getElementById(part.dataset.row);
      row.querySelector('.about').after(...part.childNodes);
      row.removeAttribute('data-k');
    }
  };
  const fill = row => row.dataset.k && (packs[row.dataset.k] ??= unpack(row.dataset.k).catch(e => {
    output.textContent = 'This browser cannot unpack what was seen (' + e.message + '): it is in evidence/.';
  }));

  const reveal = async id => {
    // What is not here yet belongs to the row that is named behind the cell.
    const row = document.getElementById(id) || document.getElementById(id.slice(id.indexOf(':') + 1));
    if (!row) return;
    await fill(row);
    const target = document.getElementById(id) || row;
    for (let e = target; e; e = e.parentElement) {
      if (e.tagName === 'DETAILS') e.open = true;
      if (e.hidden) e.hidden = false;
    }
    // Rows above take their real height only when they are near: what is scrolled to moves until they have it.
    for (let n = 0, last; n < 30 && (n < 5 || last !== target.getBoundingClientRect().top); n++) {
      last = target.getBoundingClientRect().top;
      target.scrollIntoView({ block: 'start' });
      await new Promise(requestAnimationFrame);
    }
    const summary = target.querySelector('summary');
    if (summary) summary.focus({ preventScroll: true });
  };
  const fromHash = () => { if (location.hash) reveal(decodeURIComponent(location.hash.slice(1))); };

  form.hidden = false;
  form.addEventListener('input', apply);
  form.addEventListener('submit', e => e.preventDefault());
  form.querySelector('button').addEventListener('click', () => rows.filter(r => !r.hidden).forEach(async row => {
    row.open = true;
    await fill(row);
    row.querySelectorAll('.panel').forEach(p => { p.open = true; });
  }));
  const matrix = document.querySelector('.matrix');
  const cells = [...matrix.querySelectorAll('.mh .cn')].map(c => c.textContent);
  const cellOf = mark => cells[[...mark.parentElement.querySelectorAll('.m')].indexOf(mark)];
  matrix.addEventListener('mouseover', e => {
    const mark = e.target.closest('.m');
    if (mark && !mark.title) mark.title = (mark.classList.contains('na') ? 'not for this cell' : mark.textContent.slice(2)) + ': ' + cellOf(mark);
  });
  matrix.addEventListener('toggle', e => { if (e.target.open) fill(e.target); }, true);
  matrix.addEventListener('click', async e => {
    const mark = e.target.closest('.m:not(.na)');
    if (!mark) return;
    e.preventDefault();
    const row = mark.closest('.row');
    await fill(row);
    // A mark is of one cell, or, where there are many cells, of a verdict.
    const panel = [...row.querySelectorAll('.panel')].find(p => {
      const names = p.querySelector('summary b').textContent.split(', ');
      return cells.length ? names.includes(cellOf(mark)) : p.querySelector('summary .k').classList.contains(mark.classList[1]);
    }) || row;
    history.replaceState(null, '', '#' + encodeURIComponent(panel.id));
    reveal(panel.id);
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
