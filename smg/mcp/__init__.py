"""Tools of other servers, over the Model Context Protocol. The SDK is imported when a server is first connected to."""
