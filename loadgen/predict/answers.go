package predict

import "time"

// none means no place in a list.
const none = -1

// answerCache is the LRU cache of answers of a webhook that an API server has, by the number of the question
// (k8s.io/apimachinery/pkg/util/cache, lruexpirecache.go). An answer that is too old keeps its place until it is looked
// for or displaced.
type answerCache struct {
	size    int
	held    int
	entries []answer
	newest  int32
	oldest  int32
}

// answer is what is remembered of a question: from when on, and until when.
type answer struct {
	from, until  time.Duration
	newer, older int32
	isHeld       bool
}

func newAnswerCache(size, questions int) *answerCache {
	return &answerCache{size: size, entries: make([]answer, questions), newest: none, oldest: none}
}

// recall reports whether the answer to a question is known at a time. It is most recently used then.
func (c *answerCache) recall(question int32, at time.Duration) bool {
	e := &c.entries[question]
	if !e.isHeld {
		return false
	}
	isKnown := at >= e.from && at <= e.until
	c.unlink(question)
	c.push(question)
	return isKnown
}

// remember stores the answer to a question that is asked now. It is answered at from, and remembered until then.
func (c *answerCache) remember(question int32, from, until time.Duration) {
	e := &c.entries[question]
	if e.isHeld {
		if from < e.from || e.until < from { // another request is under way, or the answer was too old
			e.from = from
		}
		e.until = max(e.until, until)
		c.unlink(question)
		c.push(question)
		return
	}
	if c.held >= c.size {
		c.drop(c.oldest)
	}
	e.from, e.until = from, until
	c.push(question)
}

func (c *answerCache) drop(question int32) { c.unlink(question) }

func (c *answerCache) push(question int32) {
	e := &c.entries[question]
	e.isHeld, e.older, e.newer = true, c.newest, none
	if c.newest != none {
		c.entries[c.newest].newer = question
	} else {
		c.oldest = question
	}
	c.newest = question
	c.held++
}

func (c *answerCache) unlink(question int32) {
	e := &c.entries[question]
	if e.newer != none {
		c.entries[e.newer].older = e.older
	} else {
		c.newest = e.older
	}
	if e.older != none {
		c.entries[e.older].newer = e.newer
	} else {
		c.oldest = e.newer
	}
	e.isHeld = false
	c.held--
}

// grow makes room for more questions.
func (c *answerCache) grow(questions int) {
	for len(c.entries) < questions {
		c.entries = append(c.entries, answer{})
	}
}

// forget forgets everything.
func (c *answerCache) forget() {
	clear(c.entries)
	c.held, c.newest, c.oldest = 0, none, none
}

// clone returns a copy.
func (c *answerCache) clone() *answerCache {
	out := *c
	out.entries = append([]answer(nil), c.entries...)
	return &out
}
