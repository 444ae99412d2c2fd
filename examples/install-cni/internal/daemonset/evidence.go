// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// ErrUnknown is in the error of [Client.Deleted] if the API server cannot be reached, or its answer
// is no evidence.
var ErrUnknown = errors.New("can't tell whether the DaemonSet was deleted")

// How long [Client.Deleted] keeps asking.
const (
	// patience is for a server that does not answer, or whose answer proves nothing.
	patience = 8 * time.Second
	// AskTime is the maximum, for answers that show that the DaemonSet is gone, and must last.
	AskTime = 15 * time.Second
)

// Evidence is what shows that a DaemonSet was deleted. The zero value means that it is still
// wanted.
type Evidence struct {
	// What is the evidence, as a clause.
	What string
	// Doubt is what could not be learned about a DaemonSet that is wanted; may be empty.
	Doubt string
}

// Deleted reports whether there is evidence of a deletion.
func (e Evidence) Deleted() bool { return e.What != "" }

// Deleted returns the evidence that the DaemonSet is gone, is being deleted, or no longer selects
// this node. It asks until the answer is certain or ctx ends: for eight seconds, or up to [AskTime]
// while the answers show that the DaemonSet is gone. If the DaemonSet was never seen, its absence
// proves nothing: a 404 then is [ErrUnknown], like everything else that is no evidence.
func (c Client) Deleted(ctx context.Context) (Evidence, error) {
	if why := c.unverified(); why != "" {
		return Evidence{}, fmt.Errorf("%w: %s", ErrUnknown, why)
	}
	i := inquiry{Client: c, begin: c.now()}
	for {
		i.turn(ctx)
		switch verdict, run := decide(i.answers); {
		case verdict == uninstall:
			return Evidence{What: i.last.text}, nil
		case verdict == stay:
			return Evidence{Doubt: i.last.text}, nil
		case c.wait(ctx) != nil || i.left(run) <= 0:
			return Evidence{}, fmt.Errorf("%w: %s", ErrUnknown, i.why(run))
		}
	}
}

// inquiry is the state of repeated requests.
type inquiry struct {
	Client
	begin   time.Time
	answers []observation
	last    finding
}

// finding is the meaning of an answer, and a text: the evidence, the doubt, or why it is neither.
type finding struct {
	standing
	text string
}

// left returns for how long to go on.
func (i *inquiry) left(run int) time.Duration {
	most := patience
	if run > 0 {
		most = AskTime
	}
	return most - i.now().Sub(i.begin)
}

func (i *inquiry) turn(ctx context.Context) {
	_, run := decide(i.answers)
	ctx, cancel := context.WithTimeout(ctx, i.left(run))
	defer cancel()
	a, err := i.get(ctx, i.daemonSet())
	if ctx.Err() != nil && err != nil && len(i.answers) > 0 {
		return // a request cut short proves less than the answers before
	}
	i.last = i.weigh(ctx, a, err)
	i.answers = append(i.answers, observation{i.last.standing, i.Memory.last()})
}

// why returns why the result is not known.
func (i *inquiry) why(run int) string {
	switch {
	case run > 0:
		return fmt.Sprintf("%s; but only %d of %d answers in a row say so", i.last.text, run, lasting)
	case i.last.standing == refused:
		return i.last.text + "; " + watched(i.Memory.last())
	}
	return i.last.text
}

// watched returns what the watch adds to a refusal.
func watched(word Word) string {
	switch word {
	case There:
		return "the ConfigMap that only the end of the installation removes is there"
	case Removed:
		return "the ConfigMap that only the end of the installation removes is gone"
	case Unheard:
	}
	return "no ConfigMap is watched that only the end of the installation removes (installation-config-map)"
}

// weigh returns the meaning of an answer.
func (c Client) weigh(ctx context.Context, a answer, err error) finding {
	how, seen := c.Memory.sawIt()
	switch {
	case err != nil:
		return finding{unclear, err.Error()}
	case a.Status == http.StatusOK && a.Metadata.DeletionTimestamp != "":
		return finding{leaving, "it is being deleted, since " + a.Metadata.DeletionTimestamp}
	case a.Status == http.StatusOK:
		return c.stillHere(ctx, a)
	case a.isMissing(c.Name) && seen:
		return finding{missing, "the API server no longer has it (404), and had it " + how}
	case a.isMissing(c.Name):
		return finding{unclear, "the API server has none of that name (404), nor did it before, as far as this daemon knows; " +
			"see pod-namespace and agent-name"}
	case a.Status == http.StatusUnauthorized:
		return finding{refused, "the API server refuses the token (401)"}
	case a.Status == http.StatusForbidden:
		return finding{refused, "the service account may not get it (403)"}
	}
	return finding{unclear, a.Unexpected().Error()}
}

// stillHere weighs the answer that the DaemonSet exists. Its pods are deleted all the same if its
// namespace is deleted, or if it no longer selects the node.
func (c Client) stillHere(ctx context.Context, a answer) finding {
	namespace := c.namespaceLeaves(ctx)
	if namespace.standing != wanted {
		return namespace
	}
	node := c.deselected(ctx, a)
	if node.standing == wanted && node.text == "" {
		return namespace
	}
	return node
}

// namespaceLeaves asks for the namespace: once, unless the failure may pass. A role that
// disappeared meanwhile may have been deleted with it.
func (c Client) namespaceLeaves(ctx context.Context) finding {
	a, err := c.get(ctx, c.namespace())
	switch {
	case err != nil:
	case a.Status == http.StatusOK && a.Metadata.DeletionTimestamp != "":
		return finding{leaving, fmt.Sprintf("its namespace %s is being deleted, since %s", c.Namespace, a.Metadata.DeletionTimestamp)}
	case a.Status == http.StatusOK:
		return finding{wanted, ""}
	default:
		err = a.Unexpected()
	}
	doubt := finding{unclear, fmt.Sprintf("whether its namespace %s is being deleted is not known: %v", c.Namespace, err)}
	if a.Status == http.StatusForbidden && !c.Memory.sawNamespace() {
		doubt.standing = wanted // the role never allowed it
	}
	return doubt
}

// deselected looks for evidence that an existing DaemonSet no longer selects this node: its pod is
// then deleted as with the DaemonSet, and has no successor. What cannot be learned is no evidence.
func (c Client) deselected(ctx context.Context, a answer) finding {
	selection := a.Spec.Template.Spec
	if c.Node == "" || selection.everywhere() {
		return finding{wanted, ""}
	}
	node, err := c.get(ctx, c.node())
	if err == nil && node.Status != http.StatusOK {
		err = node.Unexpected()
	}
	selected := true
	if err == nil {
		selected, err = selection.selects(c.Node, node.Metadata.Labels)
	}
	switch {
	case err != nil:
		return finding{wanted, fmt.Sprintf("whether the DaemonSet still selects node %s is not known: %v", c.Node, err)}
	case selected:
		return finding{wanted, ""}
	}
	return finding{leaving, fmt.Sprintf("it is there, but its nodeSelector or node affinity doesn't select node %s any more", c.Node)}
}
