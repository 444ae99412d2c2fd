// SPDX-License-Identifier: Apache-2.0

package dataplanetest_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/dataplanetest"
	"github.com/meshcni/meshcni/interception/dataplanetest/fake"
)

// memory is the ground of the fake dataplane.
type memory struct{ *fake.Dataplane }

func (m memory) Namespace(t testing.TB) *interception.Netns {
	t.Helper()
	return m.Netns(t.Name())
}

func (m memory) Dump(_ testing.TB, ns *interception.Netns) string { return m.Dataplane.Dump(ns) }

func (m memory) Occupy(t testing.TB, ns *interception.Netns, p *interception.Plan) {
	t.Helper()
	if err := m.Apply(t.Context(), ns, &interception.Plan{Owner: "some-body", Objects: p.Objects}); err != nil {
		t.Fatal(err)
	}
}

func TestFakeConforms(t *testing.T) {
	t.Parallel()
	ground := memory{fake.New(fake.Options{})}
	dataplanetest.Conformance(t, dataplanetest.ConformanceOptions{
		New:     func(testing.TB) interception.Dataplane { return ground.Dataplane },
		Ground:  ground,
		Without: map[dataplanetest.Law]string{dataplanetest.LawPackets: "what is in memory has no packets"},
	})
}

// TestLawsAreDocumented looks for each law and its description in the table of docs/testing.md.
func TestLawsAreDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/testing.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, law := range dataplanetest.Laws() {
		if row := fmt.Sprintf("| `%s` | %s |\n", string(law), law); !strings.Contains(string(text), row) {
			t.Errorf("docs/testing.md has no row\n%s", row)
		}
	}
	if unknown := dataplanetest.Law("tidy"); unknown.String() != "no law: tidy" {
		t.Errorf("String() = %q", unknown.String())
	}
}
