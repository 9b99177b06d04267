package run

import (
	"fmt"
	"strconv"
	"time"
)

// OwnReview is the review by which the requests of a block were authorized that came with the same text.
type OwnReview struct {
	Count int64 `json:"count"`
	// First is when the first one arrived, since the block's start.
	First time.Duration `json:"first"`
}

// Identities is what a block shows of whom the API server took its agents for.
type Identities struct {
	// Answers are SelfSubjectReviews whose answers were compared with the user that was wanted, Reviews access reviews of
	// requests themselves, each of which has to be about a request that was sent and the user that was wanted for it.
	Answers int64 `json:"answers"`
	Reviews int64 `json:"reviews"`
	// Wrong are the first that were wrong, with the requests concerned, of WrongCount.
	Wrong      []string `json:"wrong,omitempty"`
	WrongCount int64    `json:"wrongCount,omitempty"`
}

// mostWrong is how many wrong identities are described.
const mostWrong = 5

// Add notes what was wrong. Texts are only made for those that are described.
func (i *Identities) Add(n int64, describe func() string) {
	i.WrongCount += n
	if len(i.Wrong) < mostWrong {
		i.Wrong = append(i.Wrong, describe())
	}
}

// FindUngranted returns which answers of a block give what was not granted, or refuse what was. A refusal is one only
// where nothing else explains it: servers that restart have not read their RBAC, and a review that was given up allows
// nothing.
func (b *Block) FindUngranted(denied, restarts bool) (list []string) {
	for answer, n := range b.Answers {
		status, err := strconv.Atoi(answer)
		isAnswered := err == nil && status < 300
		isRefused := status == 403 && !restarts && b.GivenUp == 0
		switch {
		case denied && isAnswered:
			list = append(list, fmt.Sprintf("%d requests that nobody may send were answered %s", n, answer))
		case !denied && isRefused:
			list = append(list, fmt.Sprintf("%d requests that were granted were refused with 403", n))
		}
	}
	return list
}
