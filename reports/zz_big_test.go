package reports
import ("testing";"os";"github.com/authzconf/authzconf/verdicts")
func TestBig(t *testing.T){
 texts := manyTexts(t, 150)
 r, evidence := testRun(t, texts, manyCells(12), func(e *verdicts.Evidence) {})
 r.Complete(texts.Set, evidence, nil)
 page, _ := renderHTML(r, evidence, texts.Set)
 os.WriteFile("/tmp/big.html", page, 0o644)
}
