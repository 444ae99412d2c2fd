// SPDX-License-Identifier: Apache-2.0

package choice_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/choice"
	"github.com/meshcni/meshcni/interception/dataplanetest/fake"
)

// claiming is a dataplane that remembers whose objects it has claimed.
type claiming struct {
	interception.Dataplane

	claimed []interception.Owner
	err     error
}

func (c *claiming) Claim(_ context.Context, _ *interception.Netns, owner interception.Owner) error {
	c.claimed = append(c.claimed, owner)
	return c.err
}

// TestClaim asks each candidate that can claim.
func TestClaim(t *testing.T) {
	t.Parallel()
	refusal := errors.New("refused")
	for name, test := range map[string]struct {
		answers []error // of candidates that can claim
		want    error
	}{
		"none can":    {nil, interception.ErrUnsupported},
		"one can":     {[]error{nil}, nil},
		"one refuses": {[]error{refusal, nil}, refusal},
	} {
		simple := fake.New(fake.Options{})
		candidates := []choice.Candidate{{Name: "without", Dataplane: withoutSets{simple}}}
		var claimers []*claiming
		for _, answer := range test.answers {
			c := &claiming{Dataplane: fake.New(fake.Options{}), err: answer}
			claimers = append(claimers, c)
			candidates = append(candidates, choice.Candidate{Name: "claiming-" + string(rune('a'+len(claimers))), Dataplane: c})
		}
		d, err := choice.New(candidates...)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Claim(t.Context(), simple.Netns("pod"), "mesh-test"); !errors.Is(err, test.want) {
			t.Errorf("%s: got %v, want %v", name, err, test.want)
		}
		for _, c := range claimers {
			if !slices.Equal(c.claimed, []interception.Owner{"mesh-test"}) {
				t.Errorf("%s: claimed for %v, want mesh-test", name, c.claimed)
			}
		}
	}
}
