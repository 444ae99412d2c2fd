// SPDX-License-Identifier: Apache-2.0

package daemonset_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/examples/install-cni/internal/daemonset"
)

func TestDelete(t *testing.T) {
	t.Parallel()
	const once, twice, success = "DELETE GET", "DELETE DELETE GET", `{"kind":"Status","status":"Success"}`
	gone := answer(404, notFound)
	for name, test := range map[string]struct {
		answers []reply
		asked   string
		fails   string
	}{
		"with pods":          {[]reply{answer(200, leaving), answer(200, leaving), gone}, "DELETE GET GET", ""},
		"without pods":       {[]reply{answer(200, success), gone}, once, ""},
		"accepted":           {[]reply{answer(202, leaving), gone}, once, ""},
		"none":               {[]reply{gone}, "DELETE", ""},
		"installed again":    {[]reply{answer(200, leaving), answer(200, another)}, once, ""},
		"another's 404":      {[]reply{answer(404, "page not found"), answer(200, leaving), gone}, twice, ""},
		"another's 200":      {[]reply{answer(200, "welcome"), answer(200, leaving), gone}, twice, ""},
		"restarting":         {[]reply{answer(503, ""), answer(200, leaving), gone}, twice, ""},
		"role not there yet": {[]reply{answer(403, forbidden), answer(200, leaving), gone}, twice, ""},
		"no role": {
			slices.Repeat([]reply{answer(403, forbidden)}, 4),
			"DELETE DELETE DELETE DELETE", `403 "no role"; the service account needs`,
		},
		"a node is down": {[]reply{answer(200, leaving), answer(200, leaving)}, "DELETE GET GET", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, test.answers...)
			err := f.Delete(f.ctx)
			fails := test.fails != "" || len(f.asked) > len(test.answers)
			if (err != nil) != fails || (fails && (!errors.Is(err, daemonset.ErrNotDeleted) || !strings.Contains(err.Error(), test.fails))) {
				t.Errorf("Delete = %v", err)
			}
			methods := []string{}
			for _, r := range f.asked {
				methods = append(methods, r.Method)
			}
			if !slices.Equal(methods, strings.Fields(test.asked)) {
				t.Errorf("asked %s, want %s", methods, test.asked)
			}
		})
	}
}
