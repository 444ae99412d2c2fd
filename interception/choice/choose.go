// SPDX-License-Identifier: Apache-2.0

package choice

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/meshcni/meshcni/interception"
)

// Options are the settings of [Choose]. The zero value is right but for unit tests.
type Options struct {
	// Scratch makes a network namespace for a trial, which is closed behind it; nil stands for [NewScratch]. For candidates that work on no
	// kernel, as package fake's, it makes what they take.
	Scratch func() (*interception.Netns, error)
	// Timeout bounds all trials together; 10 seconds when zero.
	Timeout time.Duration
}

// defaultTimeout is enough for a machine that has to load modules from a slow disk.
const defaultTimeout = 10 * time.Second

// Choice is the candidate that was chosen, and why.
type Choice struct {
	Candidate
	// Rejected are those before it, and what they lack.
	Rejected []Rejection
}

// String is a line for a log, such as "nftables: the kernel has all that the plan needs".
func (c Choice) String() string {
	text := c.Name + ": the kernel has all that the plan needs"
	if len(c.Rejected) == 0 {
		return text
	}
	var rejected []string
	for _, r := range c.Rejected {
		rejected = append(rejected, r.String())
	}
	return text + "; not " + strings.Join(rejected, "; not ")
}

// Choose finds the first candidate that can apply the rules of p to a new pod on this machine. To ask for a kind of pods, give it the plan of
// one that uses all that they may. It writes to no namespace but those that o.Scratch makes, and takes the privileges of that: CAP_SYS_ADMIN
// and CAP_NET_ADMIN in the user namespace that it runs in.
//
// When none can, the error is an [*Error]. Any other failure (of p itself, of privileges, of the context) ends the search, since nothing is
// known then.
func Choose(ctx context.Context, p *interception.Plan, o Options, candidates ...Candidate) (Choice, error) {
	if err := validate(candidates); err != nil {
		return Choice{}, fmt.Errorf("choose dataplane: %w", err)
	}
	if p == nil {
		return Choice{}, errors.New("choose dataplane: the plan is nil")
	}
	if err := p.Validate(); err != nil {
		return Choice{}, fmt.Errorf("choose dataplane for the plan of %s: %w", p.Owner, err)
	}
	if o.Scratch == nil {
		o.Scratch = NewScratch
	}
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	var rejected []Rejection
	for _, c := range candidates {
		missing, err := lacks(ctx, c.Dataplane, p, o.Scratch)
		if err != nil {
			return Choice{}, fmt.Errorf("choose dataplane for the plan of %s: try %s: %w", p.Owner, c.Name, err)
		}
		if missing == nil {
			return Choice{c, rejected}, nil
		}
		rejected = append(rejected, Rejection{c.Name, missing})
	}
	return Choice{}, &Error{p.Owner, rejected}
}

// The names of the two dataplanes of this module, as package standard makes candidates of them.
const (
	NFTables = "nftables"
	IPTables = "iptables"
)

// Candidate is a dataplane that may be chosen.
type Candidate struct {
	// Name is what settings and logs call it.
	Name string
	// Dataplane is the dataplane.
	Dataplane interception.Dataplane
}

// Rejection says what a candidate lacks for a plan.
type Rejection struct {
	// Name is the candidate's.
	Name string
	// Missing are the errors that say so, one for each feature that was found missing. Each wraps [interception.ErrUnsupported].
	Missing []error
}

// String is the name and what is missing.
func (r Rejection) String() string {
	var texts []string
	for _, err := range r.Missing {
		texts = append(texts, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return fmt.Sprintf("%s: %s", r.Name, strings.Join(texts, "; "))
}

// Error means that no candidate can apply a plan. It wraps [interception.ErrUnsupported] and all that is missing.
type Error struct {
	// Owner is the plan's.
	Owner interception.Owner
	// Rejections are the candidates, in the order in which they were tried.
	Rejections []Rejection
}

// Error lists for each candidate what is missing.
func (e *Error) Error() string {
	text := fmt.Sprintf("no dataplane can apply the plan of %s here", e.Owner)
	for _, r := range e.Rejections {
		text += "\n" + r.String()
	}
	return text + "\ninstall or load what is named here, choose a kernel that has it, or allow another dataplane"
}

// Unwrap gives all that is missing.
func (e *Error) Unwrap() []error {
	var errs []error
	for _, r := range e.Rejections {
		errs = append(errs, r.Missing...)
	}
	return errs
}

// validate refuses candidates that could not be told apart.
func validate(candidates []Candidate) error {
	if len(candidates) == 0 {
		return errors.New("no dataplane is a candidate: give one at least")
	}
	names := map[string]bool{}
	for i, c := range candidates {
		if c.Name == "" || c.Dataplane == nil || names[c.Name] {
			return fmt.Errorf("candidate %d, %q: give each a dataplane and a name of its own", i, c.Name)
		}
		names[c.Name] = true
	}
	return nil
}
