// SPDX-License-Identifier: Apache-2.0

package choice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/backend"
)

// Options are the settings of [Choose]. The zero value is right except in unit tests.
type Options struct {
	// Scratch makes a network namespace for a trial, which Choose closes; nil stands for
	// [NewScratch]. For candidates without a kernel, as in package fake, it makes what they accept.
	Scratch func() (*interception.Netns, error)
	// Timeout bounds all trials together; 0 means 10 seconds.
	Timeout time.Duration
}

// defaultTimeout suffices for a machine that loads modules from a slow disk.
const defaultTimeout = 10 * time.Second

// Choice is the chosen candidate, and why.
type Choice struct {
	Candidate
	// Rejected are the candidates before it, with what they lack.
	Rejected []Rejection
}

// String returns a line for a log, such as "nftables: the kernel has all that the plan needs".
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

// Choose returns the first candidate that can apply the rules of p to a new pod on this machine.
// For a kind of pods, p should use every feature that they may. Choose writes only to namespaces
// from o.Scratch, and needs CAP_SYS_ADMIN and CAP_NET_ADMIN in its user namespace to make them.
//
// The error is an [*Error] if no candidate can. Any other failure (of p itself, of privileges, of
// the context) ends the search without a result.
func Choose(ctx context.Context, p *interception.Plan, o Options, candidates ...Candidate) (Choice, error) {
	if err := validate(candidates); err != nil {
		return Choice{}, fmt.Errorf("choose dataplane: %w", err)
	}
	if p == nil {
		return Choice{}, fmt.Errorf("choose dataplane: %w", p.Validate())
	}
	if err := p.Validate(); err != nil {
		return Choice{}, fmt.Errorf("choose dataplane for the plan of %s: %w", p.Owner, err)
	}
	if o.Scratch == nil {
		o.Scratch = NewScratch
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(o.Timeout, defaultTimeout))
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

// The names of this module's dataplanes, which package standard gives to its candidates.
const (
	NFTables = backend.NFTables // nftables
	IPTables = backend.IPTables // iptables
)

// Candidate is a dataplane that may be chosen.
type Candidate struct {
	// Name is the dataplane's name in settings and logs.
	Name string
	// Dataplane applies the plans.
	Dataplane interception.Dataplane
}

// Rejection says what a candidate lacks for a plan.
type Rejection struct {
	// Name is the candidate's name.
	Name string
	// Missing has an error for each missing feature. Each wraps [interception.ErrUnsupported].
	Missing []error
}

// String returns the name and what is missing.
func (r Rejection) String() string {
	var texts []string
	for _, err := range r.Missing {
		texts = append(texts, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return fmt.Sprintf("%s: %s", r.Name, strings.Join(texts, "; "))
}

// Error means that no candidate can apply a plan. It wraps [interception.ErrUnsupported].
type Error struct {
	// Owner is the plan's owner.
	Owner interception.Owner
	// Rejections are the candidates in the order in which they were tried.
	Rejections []Rejection
}

// Error returns what each candidate lacks.
func (e *Error) Error() string {
	text := fmt.Sprintf("no dataplane can apply the plan of %s here", e.Owner)
	for _, r := range e.Rejections {
		text += "\n" + r.String()
	}
	return text + "\ninstall or load what is named here, choose a kernel that has it, or allow another dataplane"
}

// Unwrap returns every missing feature.
func (e *Error) Unwrap() []error {
	var errs []error
	for _, r := range e.Rejections {
		errs = append(errs, r.Missing...)
	}
	return errs
}

// validate refuses candidates without a dataplane or a unique name.
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
