// SPDX-License-Identifier: Apache-2.0

package choice

import (
	"errors"
	"fmt"
	"strings"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/interception/nftables"
)

// The names of the candidates of [Standard].
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

// Standard are nftables and iptables, in this order, each of which takes away what the other one has left. The options' Predecessor is set
// here. On other systems than Linux the error wraps [interception.ErrUnsupported].
func Standard(n nftables.Options, i iptables.Options) ([]Candidate, error) {
	n.Predecessor, i.Predecessor = nil, nil
	oldNFTables, err := nftables.New(n)
	if err != nil {
		return nil, err
	}
	oldIPTables, err := iptables.New(i)
	if err != nil {
		return nil, err
	}
	n.Predecessor, i.Predecessor = oldIPTables, oldNFTables
	newNFTables, err := nftables.New(n)
	if err != nil {
		return nil, err
	}
	newIPTables, err := iptables.New(i)
	if err != nil {
		return nil, err
	}
	return []Candidate{{NFTables, newNFTables}, {IPTables, newIPTables}}, nil
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
