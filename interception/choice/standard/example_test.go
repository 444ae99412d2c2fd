// SPDX-License-Identifier: Apache-2.0

package standard_test

import (
	"errors"
	"fmt"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/choice"
	"github.com/meshcni/meshcni/interception/choice/standard"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/interception/nftables"
)

func Example() {
	candidates, err := standard.Candidates(nftables.Options{}, iptables.Options{})
	if errors.Is(err, interception.ErrUnsupported) { // not on Linux
		fmt.Println("nftables\niptables")
		return
	}
	for _, c := range candidates {
		fmt.Println(c.Name)
	}
	if _, err := choice.New(candidates...); err != nil {
		fmt.Println(err)
	}
	// Output:
	// nftables
	// iptables
}
