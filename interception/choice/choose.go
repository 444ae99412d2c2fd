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
