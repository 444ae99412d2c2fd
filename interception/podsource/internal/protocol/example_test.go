// SPDX-License-Identifier: Apache-2.0

package protocol_test

import (
	"encoding/json"
	"fmt"

	"github.com/meshcni/meshcni/interception/podsource/internal/protocol"
)

func ExampleErrorAnswer() {
	text, err := json.Marshal(protocol.ErrorAnswer{Error: protocol.Refusal{Reason: protocol.ReasonNotFound, Message: "gone"}})
	fmt.Println(string(text), err)
	// Output: {"error":{"reason":"PodNotFound","message":"gone"}} <nil>
}
