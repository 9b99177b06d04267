package pages

const checkTemplate = `<p><code>authzconf verify DIR</code>, with DIR the folder of this file, plans the recorded command line again, and computes every verdict and everything on this page again from the recorded evidence. It needs no server and no network. <code>report.yaml</code> has the same results for programs; <code>record.jsonl</code> lists every recorded file with its SHA-256.</p>
<p>The record has {{plural .Record.Entries "file"}} and the digest <code>{{.Record.Digest}}</code>.</p>`

// checkSection says how a reader can verify that the report follows from its evidence.
var checkSection = section{name: "check", template: checkTemplate, views: func(p *page) ([]view, error) {
	return showView(view{ID: "check", Title: "How to check this report", Data: p.Report})
}}
