package upgrade

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/authzconf/authzconf/engine/replay"
	"github.com/authzconf/authzconf/scenarios"
	"github.com/authzconf/authzconf/verdicts"
)

// WriteVerb is a way to write an object.
type WriteVerb string

// The ways in which objects are written on every stage.
const (
	WriteCreate WriteVerb = "create"
	WriteUpdate WriteVerb = "update"
	WritePatch  WriteVerb = "patch"
	// WriteLabel is the merge patch that kubectl label sends.
	WriteLabel WriteVerb = "label"
	// WriteApply is server-side apply.
	WriteApply WriteVerb = "apply"
)

// WriteRecord is what was written on a stage, and how it reads what earlier stages wrote.
type WriteRecord struct {
	// Found are the objects that earlier stages wrote, as they were read before anything was written on this one.
	Found []ObjectState `json:"found,omitempty"`
	// Writes are in the order in which they were made.
	Writes []Write `json:"writes"`
	// Decisions are what the permissions that were written last allow.
	Decisions []WrittenDecision `json:"decisions"`
	// Tokens are those that were issued on this stage and on earlier ones.
	Tokens []WrittenToken `json:"tokens"`
}

// Write is one request that writes an object.
type Write struct {
	Verb WriteVerb `json:"verb"`
	Path string    `json:"path"` // of the object
	// Sent is the body of the request.
	Sent json.RawMessage `json:"sent"`
	Code int             `json:"code"`
	// Message is why the API server refused the request.
	Message string `json:"message,omitempty"`
	// After is the object as it was read after the request, byte for byte.
	After string `json:"after,omitempty"`
}

// WrittenDecision is whether somebody may get the ConfigMap of a name, by an access review.
type WrittenDecision struct {
	User string `json:"user"`
	Name string `json:"name"`
	// Granted reports whether the roles and bindings that were written allow it, and Allowed whether the API server does.
	Granted bool `json:"granted"`
	Allowed bool `json:"allowed"`
}

// WrittenToken is a token of a service account that was written, as a stage takes it.
type WrittenToken struct {
	// Stage is where it was issued, ID the credential ID in its claims.
	Stage string `json:"stage"`
	ID    string `json:"id"`
	// User and Seen are whom a TokenReview names, and by which credential ID.
	User  string `json:"user,omitempty"`
	Seen  string `json:"seen,omitempty"`
	Error string `json:"error,omitempty"`
}

// writer writes objects on every stage of a path, as an administrator. Names are those of the path.
type writer struct {
	suffix string
	// stages counts those on which something was written.
	stages int
	paths  []string // of what was written so far
	tokens []issuedToken
}

type issuedToken struct{ stage, id, token string }

// Where permissions that were written come into force: an API server hears of them after the write.
const (
	decisionTimeout = 20 * time.Second
	decisionPoll    = 50 * time.Millisecond
)

func newWriter(seed int64) *writer {
	return &writer{suffix: scenarios.Suffix(seed, pathNames, "writes")}
}

func (w *writer) namespace() string { return "authzconf-writes-" + w.suffix }

// write reads what earlier stages wrote, writes on this one, and reads what has become of it.
func (w *writer) write(ctx context.Context, run *replay.Replayer, stage string) (*WriteRecord, error) {
	w.stages++
	client := run.Admin()
	r := &WriteRecord{}
	for _, path := range w.paths {
		body, err := readObject(ctx, client, path)
		if err != nil {
			return nil, err
		}
		r.Found = append(r.Found, ObjectState{Path: path, Body: body})
	}
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace()}}
	if _, err := client.CoreV1().Namespaces().Create(ctx, space, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, err
	}
	for _, kind := range writtenKinds {
		if err := w.writeKind(ctx, client, r, kind); err != nil {
			return nil, err
		}
	}
	if err := w.decide(ctx, client, r); err != nil {
		return nil, err
	}
	return r, w.issueToken(ctx, client, r, stage)
}

// writeKind makes a new object of a kind, and writes to the one that lives as long as the path in every way.
func (w *writer) writeKind(ctx context.Context, client kubernetes.Interface, r *WriteRecord, kind writtenKind) error {
	var objects []writtenObject
	if w.stages == 1 {
		objects = append(objects, w.object(kind, lastingName))
	}
	objects = append(objects, w.object(kind, fmt.Sprintf("stage-%d", w.stages)))
	for _, o := range objects {
		mark := w.mark(WriteCreate)
		if err := w.send(ctx, client, r, o, WriteCreate, o.buildObject(mark)); err != nil {
			return err
		}
		w.paths = append(w.paths, o.path())
	}
	lasting := w.object(kind, lastingName)
	for _, verb := range []WriteVerb{WriteUpdate, WritePatch, WriteLabel, WriteApply} {
		body, err := w.bodyOf(ctx, client, lasting, verb, w.mark(verb))
		if err != nil {
			return err
		}
		if err := w.send(ctx, client, r, lasting, verb, body); err != nil {
			return err
		}
	}
	return nil
}

// mark is what a write puts into an object, so that each write changes it.
func (w *writer) mark(verb WriteVerb) string {
	return fmt.Sprintf("%s-%d-%s", verb, w.stages, w.suffix)
}

// bodyOf returns what a write to an object sends. An update sends the object as it is, with what changes.
func (w *writer) bodyOf(
	ctx context.Context,
	client kubernetes.Interface,
	o writtenObject,
	verb WriteVerb,
	mark string,
) (map[string]any, error) {
	switch verb {
	case WritePatch:
		return o.kind.content(w, mark), nil
	case WriteLabel:
		return map[string]any{"metadata": map[string]any{"labels": map[string]any{"authzconf.dev/stage": mark}}}, nil
	case WriteUpdate:
		text, err := readObject(ctx, client, o.path())
		if err != nil {
			return nil, err
		}
		object := map[string]any{}
		if err := json.Unmarshal([]byte(text), &object); err != nil {
			return nil, err
		}
		return mergePatch(object, o.kind.content(w, mark)), nil
	default:
		return o.buildObject(mark), nil
	}
}

// send writes an object and reads it back. A refusal is recorded; an error says that the API server did not answer.
func (w *writer) send(
	ctx context.Context,
	client kubernetes.Interface,
	r *WriteRecord,
	o writtenObject,
	verb WriteVerb,
	body map[string]any,
) error {
	payload, err := json.Marshal(body)
	if err != nil {
		return err
	}
	rest := client.CoreV1().RESTClient()
	request := rest.Post().AbsPath(o.collection())
	contentType := "application/json"
	switch verb {
	case WriteUpdate:
		request = rest.Put().AbsPath(o.path())
	case WritePatch, WriteLabel:
		request, contentType = rest.Verb(http.MethodPatch).AbsPath(o.path()), "application/merge-patch+json"
	case WriteApply:
		request = rest.Verb(http.MethodPatch).AbsPath(o.path()).Param("fieldManager", "authzconf").Param("force", "true")
		contentType = "application/apply-patch+yaml"
	}
	done := Write{Verb: verb, Path: o.path(), Sent: payload}
	result := request.SetHeader("Accept", "application/json").
		SetHeader("Content-Type", contentType).
		Body(payload).
		Do(ctx).
		StatusCode(&done.Code)
	var refused *apierrors.StatusError
	if err := result.Error(); errors.As(err, &refused) {
		done.Message = err.Error()
	} else if err != nil {
		return fmt.Errorf("%s %s: %w", verb, o.path(), err)
	}
	if done.Message == "" {
		if done.After, err = readObject(ctx, client, o.path()); err != nil {
			return err
		}
	}
	r.Writes = append(r.Writes, done)
	return nil
}

// decide asks whether the permissions that were written last on the stage are in force, and those before no longer are.
func (w *writer) decide(ctx context.Context, client kubernetes.Interface, r *WriteRecord) error {
	for _, d := range []WrittenDecision{
		{User: w.mark(WriteApply), Name: w.mark(WriteApply), Granted: true},
		{User: w.mark(WritePatch), Name: w.mark(WriteApply)},
		{User: w.mark(WriteApply), Name: w.mark(WritePatch)},
	} {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: d.User,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: w.namespace(),
				Verb:      "get",
				Version:   "v1",
				Resource:  "configmaps",
				Name:      d.Name,
			},
		}}
		err := wait.PollUntilContextTimeout(ctx, decisionPoll, decisionTimeout, true, func(ctx context.Context) (bool, error) {
			answer, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
			if err != nil {
				return false, err
			}
			d.Allowed = answer.Status.Allowed
			return d.Allowed == d.Granted, nil
		})
		if err != nil && !wait.Interrupted(err) {
			return fmt.Errorf("asking what was written allows: %w", err)
		}
		r.Decisions = append(r.Decisions, d)
	}
	return ctx.Err()
}

// issueToken issues a token for the account that lives as long as the path, and asks about all tokens so far.
func (w *writer) issueToken(ctx context.Context, client kubernetes.Interface, r *WriteRecord, stage string) error {
	request := &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(time.Hour / time.Second))},
	}
	issued, err := client.CoreV1().ServiceAccounts(w.namespace()).CreateToken(ctx, lastingName, request, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("issuing a token: %w", err)
	}
	token := issuedToken{stage: stage, token: issued.Status.Token}
	if u := verdicts.TokenUser(token.token); u != nil {
		token.id = credentialID(u.Extra)
	}
	w.tokens = append(w.tokens, token)
	for _, t := range w.tokens {
		review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: t.token}}
		answer, err := client.AuthenticationV1().TokenReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("reviewing a token: %w", err)
		}
		extra := map[string][]string{}
		for key, values := range answer.Status.User.Extra {
			extra[key] = values
		}
		r.Tokens = append(r.Tokens, WrittenToken{
			Stage: t.stage, ID: t.id, User: answer.Status.User.Username, Seen: credentialID(extra), Error: answer.Status.Error,
		})
	}
	return nil
}

func readObject(ctx context.Context, client kubernetes.Interface, path string) (string, error) {
	body, err := client.CoreV1().RESTClient().Get().AbsPath(path).SetHeader("Accept", "application/json").DoRaw(ctx)
	if err != nil {
		return "", fmt.Errorf("GET %s: %w", path, err)
	}
	return string(body), nil
}
