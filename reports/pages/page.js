// The page works without this: it filters the list of all cases, and opens the failure that a link leads to.
(() => {
  const reveal = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let e = target; e; e = e.parentElement) {
      if (e.tagName === 'DETAILS') e.open = true;
    }
    if (target) target.scrollIntoView();
  };
  addEventListener('hashchange', reveal);
  if (location.hash) reveal();

  const form = document.querySelector('.filter');
  if (!form) return;
  const search = form.querySelector('input[type=search]');
  const boxes = [...form.querySelectorAll('input[type=checkbox]')];
  const level = form.querySelector('select');
  const output = form.querySelector('output');
  const folders = [...document.querySelectorAll('.matrix tbody')].map(body => ({
    body,
    name: body.querySelector('.folder')?.textContent ?? '',
    rows: [...body.querySelectorAll('tr:not(.folder)')],
  }));
  const rows = folders.flatMap(folder => folder.rows.map(row => ({
    row,
    folder,
    text: (folder.name + '/' + row.textContent).toLowerCase(),
    level: level ? row.children[1].textContent : '',
    marks: [...row.querySelectorAll('[class]')].map(e => e.className),
  })));

  const filter = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = boxes.filter(b => b.checked).map(b => b.value);
    let shown = 0;
    for (const r of rows) {
      const hit = words.every(w => r.text.includes(w)) &&
        (!level?.value || r.level === level.value) &&
        r.marks.some(m => wanted.includes(m));
      r.row.hidden = !hit;
      if (hit) shown++;
    }
    for (const f of folders) f.body.hidden = f.rows.every(row => row.hidden);
    output.textContent = (shown === rows.length ? '' : shown + ' of ') + rows.length + ' cases';
  };
  form.hidden = false;
  form.addEventListener('input', filter);
  form.addEventListener('submit', e => e.preventDefault());
  document.addEventListener('keydown', e => {
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName);
    if (e.key === '/' && !typing) {
      e.preventDefault();
      search.focus();
    }
  });
  filter();
})();
