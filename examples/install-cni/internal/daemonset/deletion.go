// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// ErrUnknown is in the error of [Client.Deleted] when the API server can't be asked, or what it says is no evidence.
var ErrUnknown = errors.New("can't tell whether the DaemonSet was deleted")

// ErrRefused is in the error of [Client.Look] for an answer that stays the same until somebody changes a role or a setting.
var ErrRefused = errors.New("the API server doesn't tell about the DaemonSet")

// Interval is how often [Client.Look] should be called, beside each time that the token is renewed.
const Interval = 10 * time.Minute

// How long [Client.Deleted] asks.
const (
	// patience is for a server that doesn't answer, or can't tell.
	patience = 8 * time.Second
	// AskTime is the most: for one that told about the DaemonSet before, and says that the service account may not get it any more (403). Who
	// deletes everything at once deletes the role, too, and the API server remembers a good token for ten seconds (k8s.io/apiserver,
	// TokenSuccessCacheTTL) before it looks for the service account again and says 401, which must last.
	AskTime = 20 * time.Second
)

// lasting is how many times in a row, a pause apart, a token must be refused: one that the kubelet is just renewing may be for a moment.
const lasting = 3

// Evidence is what shows that a DaemonSet was deleted. The empty one says that it is still wanted.
type Evidence struct {
	// What is the evidence, as a clause.
	What string
	// Indirect says that it is about the service account, not the DaemonSet: 401.
	Indirect bool
	// Doubt is what couldn't be found out about a DaemonSet that is wanted; empty where there is none.
	Doubt string
}

// Deleted reports whether it is evidence.
func (e Evidence) Deleted() bool { return e.What != "" }

// Look asks once, for the sake of the memory. The error says what would keep [Client.Deleted] from knowing.
func (c Client) Look(ctx context.Context) error {
	if why := c.unverified(); why != "" {
		return fmt.Errorf("%w: %s", ErrRefused, why)
	}
	a, err := c.ask(ctx)
	switch {
	case err != nil:
		return err
	case a.status == http.StatusOK:
		return nil
	case a.isMissing(c.Name):
		return fmt.Errorf("%w: there is none of that name; see pod-namespace and agent-name", ErrRefused)
	case a.status == http.StatusForbidden:
		return fmt.Errorf("%w: the service account may not get it; allow it by a role, or set uninstall-on-deletion to false", ErrRefused)
	}
	return a.unexpected()
}

// Deleted reports whether the DaemonSet is gone, or about to be, or has let go of this node, and what shows it. It asks until it knows or ctx
// ends, for eight seconds, or up to [AskTime] where the right to get it was taken away. A DaemonSet that was never seen can't be missed:
// 404 for it is [ErrUnknown], as is everything else that is no evidence.
func (c Client) Deleted(ctx context.Context) (Evidence, error) {
	if why := c.unverified(); why != "" {
		return Evidence{}, fmt.Errorf("%w: %s", ErrUnknown, why)
	}
	i := inquiry{Client: c, begin: c.now()}
	for {
		if evidence, known := i.turn(ctx); known {
			return evidence, nil
		}
		if c.wait(ctx) != nil || i.left() <= 0 {
			return Evidence{}, fmt.Errorf("%w: %w", ErrUnknown, i.why())
		}
	}
}

// deselected is evidence that a DaemonSet which is there doesn't select this node any more: its pod is deleted then as with the DaemonSet, and
// nobody comes after it. What can't be found out is no evidence.
func (c Client) deselected(ctx context.Context, a answer) Evidence {
	selection := a.Spec.Template.Spec
	if c.Node == "" || selection.everywhere() {
		return Evidence{}
	}
	node, err := c.send(ctx, c.node(), http.MethodGet, "")
	if err == nil && node.status != http.StatusOK {
		err = node.unexpected()
	}
	selected := true
	if err == nil {
		selected, err = selection.selects(c.Node, node.Metadata.Labels)
	}
	if err != nil {
		return Evidence{Doubt: fmt.Sprintf("whether the DaemonSet still selects node %s is not known: %v", c.Node, err)}
	}
	if selected {
		return Evidence{}
	}
	return Evidence{What: fmt.Sprintf("it is there, but its nodeSelector or node affinity doesn't select node %s any more", c.Node)}
}

// inquiry is what asking again and again has come to.
type inquiry struct {
	Client
	begin    time.Time
	refusals int   // of the token, in a row
	revoked  bool  // the right to get the DaemonSet, which was there
	last     error // why the last answer is no evidence; nil if it would be, if it lasts
}

// left is for how long to go on.
func (i *inquiry) left() time.Duration {
	most := patience
	if i.revoked {
		most = AskTime
	}
	return most - i.now().Sub(i.begin)
}

// turn asks once more.
func (i *inquiry) turn(ctx context.Context) (evidence Evidence, known bool) {
	ctx, cancel := context.WithTimeout(ctx, i.left())
	defer cancel()
	a, err := i.ask(ctx)
	if ctx.Err() != nil && err != nil && i.asked() {
		return Evidence{}, false // what time ended says less than what was before
	}
	evidence, known = i.take(a, err)
	if known && !evidence.Deleted() {
		evidence = i.deselected(ctx, a)
	}
	return evidence, known
}

func (i *inquiry) asked() bool { return i.last != nil || i.refusals > 0 }

// take weighs the next answer.
func (i *inquiry) take(a answer, err error) (evidence Evidence, known bool) {
	switch {
	case err != nil:
		i.refusals, i.last = 0, err
	case a.status == http.StatusUnauthorized:
		i.refusals++
		evidence, i.last = i.refused(a.token)
		known = i.last == nil && i.refusals >= lasting
	default:
		i.refusals = 0
		evidence, known, i.last = i.judge(a)
		_, seen := i.memory().sawIt()
		i.revoked = i.revoked || (seen && a.status == http.StatusForbidden)
	}
	return evidence, known
}

// why says why it isn't known.
func (i *inquiry) why() error {
	if i.last != nil {
		return i.last
	}
	return fmt.Errorf("the API server refuses the token (401), but there was only time to ask %d times", i.refusals)
}

// judge weighs an answer that is not about the token.
func (c Client) judge(a answer) (evidence Evidence, known bool, err error) {
	switch {
	case a.status == http.StatusOK && a.Metadata.DeletionTimestamp != "":
		return Evidence{What: "it is being deleted, since " + a.Metadata.DeletionTimestamp}, true, nil
	case a.status == http.StatusOK:
		return Evidence{}, true, nil
	case a.isMissing(c.Name):
		if how, ok := c.memory().sawIt(); ok {
			return Evidence{What: "the API server has it no more (404), and had it " + how}, true, nil
		}
		return Evidence{}, false, errors.New("the API server has none of that name (404), and had none before as far as this daemon knows; " +
			"see pod-namespace and agent-name")
	case a.status == http.StatusForbidden:
		if _, seen := c.memory().sawIt(); seen {
			return Evidence{}, false, errors.New("the service account may not get it any more (403), and is still known: its role was taken away")
		}
		return Evidence{}, false, errors.New("the service account may not get it (403); allow it by a role, or set uninstall-on-deletion to false")
	}
	return Evidence{}, false, a.unexpected()
}

// refused weighs that the API server refuses a token. It does so when the service account was deleted, which goes together with the DaemonSet,
// and often a moment earlier; but also for other reasons, which the error names.
func (c Client) refused(token string) (Evidence, error) {
	now := c.now()
	if at, ok := expiry(token); ok && !at.After(now) {
		return Evidence{}, fmt.Errorf("the API server refuses the token (401), which has expired at %s", at.UTC().Format(time.RFC3339))
	}
	when, ok := c.memory().knew(token, now)
	if !ok {
		return Evidence{}, fmt.Errorf("the API server refuses the token (401), and is not known to have taken it within %v; "+
			"it may have refused it all the time", trusted)
	}
	what := "the API server knows the service account no more (401, %d times), and took the same token at %s"
	return Evidence{Indirect: true, What: fmt.Sprintf(what, lasting, when.UTC().Format(time.RFC3339))}, nil
}

// memory is never nil.
func (c Client) memory() *Memory {
	if c.Memory == nil {
		return &Memory{}
	}
	return c.Memory
}

func (a answer) unexpected() error {
	return fmt.Errorf("the API server answers %d %.*q", a.status, maxMessage, a.Message)
}
